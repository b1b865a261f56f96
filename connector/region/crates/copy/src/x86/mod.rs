//! Kernels for x86-64, each behind the instructions it needs.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "a kernel's destination is aligned by contract, its source read unaligned"
)]

/// Whether this CPU and operating system offer an instruction set that the environment does not rule out.
macro_rules! usable {
    ($feature:tt) => {
        is_x86_feature_detected!($feature) && $crate::cpu::may_use($feature)
    };
}

pub(crate) mod bare;
mod edges;
mod fold;
mod interleave;
mod load;
mod sse42;
mod tiled;

use crate::kernel::Kernel;

/// The kernels whose instructions are usable.
pub(crate) fn candidates() -> Vec<Kernel> {
    let mut found = Vec::new();
    if !usable!("sse4.2") {
        return found;
    }
    found.push(edges::kernel::<sse42::Single>(2, "sse42"));
    if !usable!("pclmulqdq") {
        return found;
    }
    found.push(edges::kernel::<interleave::Interleaved>(3, "crc3"));
    found.push(edges::kernel::<fold::Fold128<0>>(4, "pclmul"));
    found.push(edges::kernel::<fold::Fold128<2048>>(5, "pclmul-ahead2k"));
    if usable!("avx2") {
        found.push(edges::kernel::<
            tiled::Tiled<interleave::Interleaved, tiled::Stream256>,
        >(11, "tile-crc3-nt256"));
    }
    if usable!("avx512f") {
        found.push(edges::kernel::<
            tiled::Tiled<interleave::Interleaved, tiled::Stream512>,
        >(12, "tile-crc3-nt512"));
    }
    let wide = usable!("vpclmulqdq");
    if wide && usable!("avx2") {
        found.push(edges::kernel::<fold::Fold256<0>>(6, "vpclmul256"));
        found.push(edges::kernel::<fold::Fold256<2048>>(
            7,
            "vpclmul256-ahead2k",
        ));
    }
    if wide && usable!("avx512f") {
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
