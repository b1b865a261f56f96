//! The kernel that needs nothing but the language: tables for the CRC, the compiler's copy.

use crate::kernel::Kernel;
use crate::{crc, line};

/// Block that stays in the first-level cache between its copy, its CRC and its store.
const BLOCK_BYTES: usize = 4096;

pub(crate) const KERNEL: Kernel = Kernel {
    id: 1,
    name: "portable",
    copy_crc,
    copy_nt_crc,
    crc: crc_only,
};

unsafe fn copy_crc(dst: *mut u8, src: *const u8, len: usize, crc: u32) -> u32 {
    // SAFETY: the kernel contract, passed on.
    unsafe {
        through_block(src, len, crc, |offset, block| {
            block
                .as_ptr()
                .copy_to_nonoverlapping(dst.add(offset), block.len());
        })
    }
}

/// Without non-temporal stores: ordinary ones, flushed, which leaves memory and caches in the same state.
unsafe fn copy_nt_crc(dst: *mut u8, src: *const u8, len: usize, crc: u32) -> u32 {
    // SAFETY: the kernel contract, passed on.
    unsafe {
        through_block(src, len, crc, |offset, block| {
            block
                .as_ptr()
                .copy_to_nonoverlapping(dst.add(offset), block.len());
            line::flush_range(dst.add(offset), block.len());
        })
    }
}

unsafe fn crc_only(ptr: *const u8, len: usize, crc: u32) -> u32 {
    // SAFETY: the kernel contract, passed on.
    unsafe { through_block(ptr, len, crc, |_, _| ()) }
}

/// Brings the source block by block into private memory, so that what is hashed is what `store` sees.
#[inline]
unsafe fn through_block(
    src: *const u8,
    len: usize,
    mut crc: u32,
    mut store: impl FnMut(usize, &[u8]),
) -> u32 {
    let mut block = [0_u8; BLOCK_BYTES];
    for offset in (0..len).step_by(BLOCK_BYTES) {
        let part = BLOCK_BYTES.min(len - offset);
        // SAFETY: offset + part <= len, and the block holds part bytes.
        unsafe {
            src.add(offset)
                .copy_to_nonoverlapping(block.as_mut_ptr(), part);
        };
        crc = crc::crc32c(crc, &block[..part]);
        store(offset, &block[..part]);
    }
    crc
}
