//! From a loop over whole lines to a kernel: the bytes before and after the aligned middle, and the seed.

use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

use super::load;
use crate::kernel::Kernel;
use crate::line::{self, LINE_BYTES};
use crate::mode::{HASH, STORE, STREAM};

/// The middle of a kernel. `state` is the CRC register: the finished CRC with its bits inverted.
///
/// # Safety
/// Implementations may use instructions beyond SSE4.2; `candidates` offers them only where CPUID has those.
pub(super) unsafe trait Middle {
    /// Hashes and, as `MODE` says, copies.
    ///
    /// # Safety
    /// `dst` is 64-byte aligned unless the mode is `HASH`, `len` is a multiple of 64, and the kernel contract holds.
    unsafe fn run<const MODE: u8>(dst: *mut u8, src: *const u8, len: usize, state: u32) -> u32;
}

pub(super) const fn kernel<M: Middle>(id: u16, name: &'static str) -> Kernel {
    Kernel {
        id,
        name,
        copy_crc: entry::<M, STORE>,
        copy_nt_crc: entry::<M, STREAM>,
        crc: hash::<M>,
    }
}

unsafe fn hash<M: Middle>(ptr: *const u8, len: usize, crc: u32) -> u32 {
    // SAFETY: this mode uses no destination.
    unsafe { entry::<M, HASH>(core::ptr::null_mut(), ptr, len, crc) }
}

unsafe fn entry<M: Middle, const MODE: u8>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    crc: u32,
) -> u32 {
    let head = if MODE == HASH {
        0
    } else {
        dst.align_offset(LINE_BYTES).min(len)
    };
    let middle = (len - head) / LINE_BYTES * LINE_BYTES;
    let tail = len - head - middle;
    let at = |offset: usize| (dst.wrapping_add(offset), src.wrapping_add(offset));
    let ((dst_middle, src_middle), (dst_tail, src_tail)) = (at(head), at(head + middle));
    // SAFETY: head + middle + tail = len; dst + head is line-aligned; SSE4.2 is there, or M would not be offered.
    unsafe {
        let mut state = edge::<MODE>(dst, src, head, !crc);
        state = M::run::<MODE>(dst_middle, src_middle, middle, state);
        !edge::<MODE>(dst_tail, src_tail, tail, state)
    }
}

/// Part of one line, word by word, then byte by byte. When streaming, the line is flushed: it must not stay dirty.
#[target_feature(enable = "sse4.2")]
unsafe fn edge<const MODE: u8>(dst: *mut u8, src: *const u8, len: usize, mut state: u32) -> u32 {
    let words = len / 8 * 8;
    // SAFETY: every offset is below len, for which both pointers are valid.
    unsafe {
        for offset in (0..words).step_by(8) {
            let word = load::word(src.add(offset));
            state = _mm_crc32_u64(state.into(), word) as u32;
            if MODE != HASH {
                dst.add(offset).cast::<u64>().write_unaligned(word);
            }
        }
        for offset in words..len {
            let byte = load::byte(src.add(offset));
            state = _mm_crc32_u8(state, byte);
            if MODE != HASH {
                *dst.add(offset) = byte;
            }
        }
        if MODE == STREAM {
            line::flush_range(dst, len);
        }
    }
    state
}
