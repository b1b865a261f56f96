//! One chain of CRC32 instructions: needs SSE4.2 alone. Bound by the instruction's latency, 8 bytes every 3 cycles.

use core::arch::x86_64::{_mm_crc32_u64, _mm_stream_si64};

use super::edges::Middle;

pub(super) struct Single;

// SAFETY: SSE4.2 only.
unsafe impl Middle for Single {
    unsafe fn copy<const NT: bool>(dst: *mut u8, src: *const u8, len: usize, state: u32) -> u32 {
        // SAFETY: passed on.
        unsafe { copy::<NT>(dst, src, len, state) }
    }

    unsafe fn crc(ptr: *const u8, len: usize, state: u32) -> u32 {
        // SAFETY: passed on.
        unsafe { crc(ptr, len, state) }
    }
}

#[target_feature(enable = "sse4.2")]
unsafe fn copy<const NT: bool>(dst: *mut u8, src: *const u8, len: usize, state: u32) -> u32 {
    let mut register = u64::from(state);
    for offset in (0..len).step_by(8) {
        // SAFETY: offset + 8 <= len, and dst is aligned.
        unsafe {
            let word = src.add(offset).cast::<u64>().read_unaligned();
            register = _mm_crc32_u64(register, word);
            let target = dst.add(offset).cast::<u64>();
            if NT {
                _mm_stream_si64(target.cast(), word.cast_signed());
            } else {
                target.write(word);
            }
        }
    }
    register as u32
}

#[target_feature(enable = "sse4.2")]
unsafe fn crc(ptr: *const u8, len: usize, state: u32) -> u32 {
    let mut register = u64::from(state);
    for offset in (0..len).step_by(8) {
        // SAFETY: offset + 8 <= len.
        register = _mm_crc32_u64(register, unsafe {
            ptr.add(offset).cast::<u64>().read_unaligned()
        });
    }
    register as u32
}
