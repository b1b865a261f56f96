//! Kernels for x86-64, each behind the instructions it needs.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "a kernel's destination is aligned by contract, its source read unaligned"
)]

pub(crate) mod bare;
mod edges;
mod fold;
mod interleave;
mod load;
mod sse42;
mod tiled;

use crate::kernel::Kernel;

/// The kernels whose instructions this CPU (and operating system) offers.
pub(crate) fn candidates() -> Vec<Kernel> {
    let mut found = Vec::new();
    if !is_x86_feature_detected!("sse4.2") {
        return found;
    }
    found.push(edges::kernel::<sse42::Single>(2, "sse42"));
    if !is_x86_feature_detected!("pclmulqdq") {
        return found;
    }
    found.push(edges::kernel::<interleave::Interleaved>(3, "crc3"));
    found.push(edges::kernel::<fold::Fold128<0>>(4, "pclmul"));
    found.push(edges::kernel::<fold::Fold128<2048>>(5, "pclmul-ahead2k"));
    if is_x86_feature_detected!("avx2") {
        found.push(edges::kernel::<
            tiled::Tiled<interleave::Interleaved, tiled::Stream256>,
        >(11, "tile-crc3-nt256"));
    }
    if is_x86_feature_detected!("avx512f") {
        found.push(edges::kernel::<
            tiled::Tiled<interleave::Interleaved, tiled::Stream512>,
        >(12, "tile-crc3-nt512"));
    }
    let wide = is_x86_feature_detected!("vpclmulqdq");
    if wide && is_x86_feature_detected!("avx2") {
        found.push(edges::kernel::<fold::Fold256<0>>(6, "vpclmul256"));
        found.push(edges::kernel::<fold::Fold256<2048>>(
            7,
            "vpclmul256-ahead2k",
        ));
    }
    if wide && is_x86_feature_detected!("avx512f") {
        found.push(edges::kernel::<fold::Fold512<0>>(8, "vpclmul512"));
        found.push(edges::kernel::<fold::Fold512<2048>>(
            9,
            "vpclmul512-ahead2k",
        ));
        found.push(edges::kernel::<fold::Fold512<4096>>(
            10,
            "vpclmul512-ahead4k",
        ));
        found.push(edges::kernel::<
            tiled::Tiled<fold::Fold512<0>, tiled::Stream512>,
        >(13, "tile-vpclmul512-nt512"));
    }
    found
}
