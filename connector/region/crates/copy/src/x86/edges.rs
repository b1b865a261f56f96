//! From a loop over whole lines to a kernel: the bytes before and after the aligned middle, and the seed.

use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

use crate::kernel::Kernel;
use crate::line::{self, LINE_BYTES};

/// The middle of a kernel. `state` is the CRC register: the finished CRC with its bits inverted.
///
/// # Safety
/// Implementations may use instructions beyond SSE4.2; `candidates` offers them only where CPUID has those.
pub(super) unsafe trait Middle {
    /// Copies and hashes; `NT` selects non-temporal stores.
    ///
    /// # Safety
    /// `dst` is 64-byte aligned, `len` a multiple of 64, and the kernel contract holds.
    unsafe fn copy<const NT: bool>(dst: *mut u8, src: *const u8, len: usize, state: u32) -> u32;

    /// Hashes.
    ///
    /// # Safety
    /// `len` is a multiple of 64, readable at `ptr`.
    unsafe fn crc(ptr: *const u8, len: usize, state: u32) -> u32;
}

pub(super) const fn kernel<M: Middle>(id: u16, name: &'static str) -> Kernel {
    Kernel {
        id,
        name,
        copy_crc: copy::<M, false>,
        copy_nt_crc: copy::<M, true>,
        crc: crc::<M>,
    }
}

unsafe fn copy<M: Middle, const NT: bool>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    crc: u32,
) -> u32 {
    let head = dst.align_offset(LINE_BYTES).min(len);
    let middle = (len - head) / LINE_BYTES * LINE_BYTES;
    let tail = len - head - middle;
    // SAFETY: head + middle + tail = len; dst + head is line-aligned; SSE4.2 is there, or M would not be offered.
    unsafe {
        let mut state = copy_edge::<NT>(dst, src, head, !crc);
        state = M::copy::<NT>(dst.add(head), src.add(head), middle, state);
        !copy_edge::<NT>(dst.add(head + middle), src.add(head + middle), tail, state)
    }
}

unsafe fn crc<M: Middle>(ptr: *const u8, len: usize, crc: u32) -> u32 {
    let middle = len / LINE_BYTES * LINE_BYTES;
    // SAFETY: middle <= len; SSE4.2 is there, or M would not be offered.
    unsafe {
        let state = M::crc(ptr, middle, !crc);
        !crc_edge(ptr.add(middle), len - middle, state)
    }
}

/// Part of one line, word by word, then byte by byte. With `NT` the line is flushed: it must not stay dirty.
#[target_feature(enable = "sse4.2")]
unsafe fn copy_edge<const NT: bool>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    mut state: u32,
) -> u32 {
    let words = len / 8 * 8;
    // SAFETY: every offset is below len, for which both pointers are valid.
    unsafe {
        for offset in (0..words).step_by(8) {
            let word = src.add(offset).cast::<u64>().read_unaligned();
            state = _mm_crc32_u64(state.into(), word) as u32;
            dst.add(offset).cast::<u64>().write_unaligned(word);
        }
        for offset in words..len {
            let byte = *src.add(offset);
            state = _mm_crc32_u8(state, byte);
            *dst.add(offset) = byte;
        }
        if NT {
            line::flush_range(dst, len);
        }
    }
    state
}

#[target_feature(enable = "sse4.2")]
unsafe fn crc_edge(ptr: *const u8, len: usize, mut state: u32) -> u32 {
    let words = len / 8 * 8;
    // SAFETY: every offset is below len, for which the pointer is valid.
    unsafe {
        for offset in (0..words).step_by(8) {
            state =
                _mm_crc32_u64(state.into(), ptr.add(offset).cast::<u64>().read_unaligned()) as u32;
        }
        for offset in words..len {
            state = _mm_crc32_u8(state, *ptr.add(offset));
        }
    }
    state
}
