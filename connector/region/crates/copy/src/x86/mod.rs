//! Kernels for x86-64, each behind the instructions it needs.

#![expect(
    clippy::cast_ptr_alignment,
    reason = "a kernel's destination is aligned by contract, its source read unaligned"
)]

mod edges;
mod sse42;

use crate::kernel::Kernel;

/// The kernels whose instructions this CPU (and operating system) offers.
pub(crate) fn candidates() -> Vec<Kernel> {
    let mut found = Vec::new();
    if is_x86_feature_detected!("sse4.2") {
        found.push(edges::kernel::<sse42::Single>(2, "sse42"));
    }
    found
}
