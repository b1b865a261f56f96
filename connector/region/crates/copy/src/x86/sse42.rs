//! One chain of CRC32 instructions: needs SSE4.2 alone. Bound by the instruction's latency, 8 bytes every 3 cycles.

use core::arch::x86_64::{_mm_crc32_u64, _mm_stream_si64};

use super::edges::Middle;
use super::load;
use crate::mode::{STORE, STREAM, touch_ahead};

pub(super) struct Single;

// SAFETY: SSE4.2 only.
unsafe impl Middle for Single {
    unsafe fn run<const MODE: u8>(dst: *mut u8, src: *const u8, len: usize, state: u32) -> u32 {
        // SAFETY: passed on.
        unsafe { run::<MODE>(dst, src, len, state) }
    }
}

#[target_feature(enable = "sse4.2")]
pub(super) unsafe fn run<const MODE: u8>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    state: u32,
) -> u32 {
    let mut register = u64::from(state);
    for offset in (0..len).step_by(8) {
        touch_ahead::<MODE, 8>(dst.wrapping_add(offset), offset);
        // SAFETY: offset + 8 <= len, and dst is aligned.
        register = unsafe { word::<MODE>(dst.wrapping_add(offset), src.add(offset), register) };
    }
    register as u32
}

/// Hashes one word and stores it as the mode says.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(super) unsafe fn word<const MODE: u8>(dst: *mut u8, src: *const u8, register: u64) -> u64 {
    // SAFETY: the caller has a word at src, and an aligned one at dst unless the mode is HASH.
    unsafe {
        let word = load::word(src);
        match MODE {
            STORE => dst.cast::<u64>().write(word),
            STREAM => _mm_stream_si64(dst.cast(), word.cast_signed()),
            _ => (),
        }
        _mm_crc32_u64(register, word)
    }
}
