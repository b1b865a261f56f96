//! Copies without a checksum: what a benchmark calls the machine's best, never what the product uses.

/// `unsafe fn(dst, src, len)`: copies; a non-temporal one ends with a fence.
pub type BareFn = unsafe fn(*mut u8, *const u8, usize);

/// One unverified copy.
#[derive(Clone, Copy)]
pub struct Bare {
    /// Name in a benchmark's column.
    pub name: &'static str,
    /// Needs: both ranges valid for `len`, no overlap, `dst` 64-byte aligned, `len` a multiple of 256.
    pub copy: BareFn,
}

/// The unverified copies this CPU can run; `memcpy` (the C library's) is first.
pub fn copies() -> Vec<Bare> {
    let memcpy = Bare {
        name: "memcpy",
        copy: memcpy,
    };
    core::iter::once(memcpy).chain(machine()).collect()
}

#[cfg(target_arch = "x86_64")]
use crate::x86::bare::copies as machine;

/// Elsewhere the C library is the only one.
#[cfg(not(target_arch = "x86_64"))]
fn machine() -> Vec<Bare> {
    Vec::new()
}

unsafe fn memcpy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's ranges are valid and apart. A copy of unknown length is a call of the C library.
    unsafe { src.copy_to_nonoverlapping(dst, len) };
}
