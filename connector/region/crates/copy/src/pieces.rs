//! Objects in pieces: gathered from an engine's pages, scattered into them, and read from memory that another host
//! writes and no hardware keeps coherent.

use core::ops::Range;

use crate::kernel::CopyFn;
use crate::line::{self, LINE_BYTES};

/// Bytes invalidated ahead of the copy: enough that the fence between two batches, which waits for every store on its
/// way, costs little; few enough to overlap with the copy.
pub const BATCH_BYTES: usize = 256 * 1024;

/// Bytes of the next piece that are fetched early; more get in the way of the piece that is being copied.
const FETCH_BYTES: usize = 512;

/// One contiguous part of an object: a page of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Piece {
    /// Where its bytes go.
    pub dst: *mut u8,
    /// Where they come from.
    pub src: *const u8,
    /// How many.
    pub len: usize,
}

/// Copies the pieces in order; returns the CRC32C of all bytes, continued from `crc`.
///
/// # Safety
/// Every piece keeps the contract of [`crate::Kernel`], and `copy` is a kernel's.
pub unsafe fn copy_pieces(copy: CopyFn, pieces: &[Piece], mut crc: u32) -> u32 {
    for (i, piece) in pieces.iter().enumerate() {
        if let Some(next) = pieces
            .get(i + 1)
            .filter(|next| next.src != piece.src.wrapping_add(piece.len))
        {
            fetch_start(next);
        }
        // SAFETY: passed on.
        crc = unsafe { copy(piece.dst, piece.src, piece.len, crc) };
    }
    crc
}

/// Begins to load a piece that is somewhere else while the one before it is copied: a jump no prefetcher foresees.
/// (Pages of 4 KiB: a sixth faster; of 32 KiB and more: no difference.)
fn fetch_start(piece: &Piece) {
    for offset in (0..FETCH_BYTES.min(piece.len)).step_by(LINE_BYTES) {
        line::prefetch(piece.src.wrapping_add(offset));
    }
}

/// [`copy_pieces`] from memory this host caches incoherently: every source line is invalidated after the call begins
/// and before it is loaded.
///
/// One batch is invalidated while the one before it is copied. The order that readers need holds for every line:
/// invalidate, [`line::mfence`], load. A prefetch between the two brings the line from memory, and after the call
/// began: as good as the load.
///
/// # Safety
/// As [`copy_pieces`]; and this host never stores to the
/// sources (an invalidation would write such a store back over the other host's bytes).
pub unsafe fn copy_pieces_invalidated(copy: CopyFn, pieces: &[Piece], mut crc: u32) -> u32 {
    let (mut ahead, mut behind) = (parts(pieces), parts(pieces));
    // SAFETY: every part lies within its piece.
    unsafe {
        let mut invalidated = invalidate_batch(&mut ahead);
        while invalidated > 0 {
            line::mfence();
            let next = invalidate_batch(&mut ahead);
            for part in behind.by_ref().take(invalidated) {
                crc = copy(part.dst, part.src, part.len, crc);
            }
            invalidated = next;
        }
    }
    crc
}

/// The `index`-th of `count` nearly equal shares of `len` bytes, cut at lines: for threads that copy one object together
/// and join their CRCs with [`crate::crc_combine`]. Every share is empty or begins at a multiple of 64.
pub const fn share(len: usize, index: usize, count: usize) -> Range<usize> {
    let lines = len / LINE_BYTES;
    let start = lines / count * index
        + if index < lines % count {
            index
        } else {
            lines % count
        };
    let own = lines / count + if index < lines % count { 1 } else { 0 };
    let end = if index + 1 == count {
        len
    } else {
        (start + own) * LINE_BYTES
    };
    start * LINE_BYTES..end
}

/// The pieces, those above a batch cut into batches.
fn parts(pieces: &[Piece]) -> impl Iterator<Item = Piece> {
    pieces.iter().flat_map(|piece| {
        (0..piece.len).step_by(BATCH_BYTES).map(|offset| Piece {
            dst: piece.dst.wrapping_add(offset),
            src: piece.src.wrapping_add(offset),
            len: BATCH_BYTES.min(piece.len - offset),
        })
    })
}

/// Invalidates parts until a batch is full; returns how many.
unsafe fn invalidate_batch(parts: &mut impl Iterator<Item = Piece>) -> usize {
    let (mut count, mut bytes) = (0, 0);
    while bytes < BATCH_BYTES {
        let Some(part) = parts.next() else { break };
        // SAFETY: a part of a caller's piece is mapped.
        unsafe { line::invalidate_range(part.src, part.len) };
        count += 1;
        bytes += part.len;
    }
    count
}
