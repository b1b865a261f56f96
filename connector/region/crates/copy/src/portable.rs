//! The kernel that needs nothing but the language.
//!
//! CRC32C without tables or special instructions for all but the last bytes. The polynomial divides
//! x^290 + x^136 + x^113 + x^107 + x^32 + 1. Raised to the 64th power, which over GF(2) multiplies every exponent by
//! 64, this speaks of words instead of bits: a word can be removed from a message by an exclusive or into the words
//! 154, 177, 183, 258 and 290 further on, and the CRC stays. Neighbouring words never depend on each other, so every
//! compiler makes vectors of that; what remains of the message, 290 words and a rest, is hashed by tables.
//!
//! Sparse multiples for CRCs are from Russell, "Chorba: A novel CRC32 implementation" (2024). Among the multiples
//! with six terms this one keeps 154 words between a store and its next load: a nearer one (65, of degree 209) leaves
//! fewer words to the tables, but its loads find their stores still in the queue, at an offset it cannot forward.

use core::sync::atomic::{Ordering, compiler_fence};

use crate::crc::{crc32c, power};
use crate::kernel::Kernel;
use crate::line;
use crate::mode::{HASH, STORE, STREAM, touch_ahead};

/// How far on a removed word goes, in words.
const DISTANCES: [usize; 5] = [154, 177, 183, 258, 290];
/// The furthest distance.
const REACH: usize = 290;
/// Words of history kept: the reach, in whole lines, so that strips of history are lines of memory. Stores that straddle
/// two lines cost a third of the speed on Zen 4.
const KEPT: usize = REACH.next_multiple_of(STRIP);
/// Words handled together, one line; below the shortest distance, so that none depends on another.
const STRIP: usize = line::LINE_BYTES / WORD_BYTES;
/// Words of history written before the oldest are dropped: history and block fit the first-level cache.
const BLOCK: usize = 1024;
/// Messages below this are hashed by tables alone.
const SHORT_BYTES: usize = 2 * REACH * WORD_BYTES;
/// What can remain: the reach, an incomplete strip, an incomplete word.
const REST_BYTES_MAX: usize = (REACH + STRIP) * WORD_BYTES;
const WORD_BYTES: usize = 8;

const _: () = {
    let mut sum = power(0);
    let mut i = 0;
    while i < DISTANCES.len() {
        // Distance d leads from x^209 to x^(209 - d), bits of a word alike.
        sum ^= power(64 * (REACH - DISTANCES[i]) as u128);
        i += 1;
    }
    assert!(
        sum ^ power(0) == power(64 * REACH as u128),
        "not a multiple of the polynomial"
    );
    assert!(STRIP < DISTANCES[0] && REACH == DISTANCES[4] && BLOCK >= REACH);
};

/// The latest words, each with what earlier ones were moved into it; as lines, which no store of a strip straddles.
#[repr(align(64))]
struct History([u64; KEPT + BLOCK]);

pub(crate) const KERNEL: Kernel = Kernel {
    id: 1,
    name: "portable",
    copy_crc: copy::<STORE>,
    copy_nt_crc,
    crc: crc_only,
};

unsafe fn crc_only(ptr: *const u8, len: usize, crc: u32) -> u32 {
    // SAFETY: HASH never uses the destination.
    unsafe { copy::<HASH>(core::ptr::null_mut(), ptr, len, crc) }
}

/// Streams where the destination is aligned; else ordinary stores and a flush, which leave caches in the same state.
unsafe fn copy_nt_crc(dst: *mut u8, src: *const u8, len: usize, crc: u32) -> u32 {
    // SAFETY: the kernel contract, passed on.
    unsafe {
        if dst.addr().is_multiple_of(line::LINE_BYTES) {
            return copy::<STREAM>(dst, src, len, crc);
        }
        let crc = copy::<STORE>(dst, src, len, crc);
        line::flush_range(dst, len);
        crc
    }
}

unsafe fn copy<const MODE: u8>(dst: *mut u8, src: *const u8, len: usize, crc: u32) -> u32 {
    if len < SHORT_BYTES {
        // SAFETY: passed on; SHORT_BYTES fits the block.
        return unsafe { rest::<MODE>(dst, src, len, crc, &[]) };
    }
    let removed = (len / WORD_BYTES - REACH) / STRIP * STRIP;
    let mut lines = History([0; KEPT + BLOCK]);
    let history = &mut lines.0;
    // The seed belongs to word 0, and only word 0 looks this far back.
    history[KEPT - REACH] = u64::from(!crc);
    for first in (0..removed).step_by(BLOCK) {
        let words = BLOCK.min(removed - first);
        for strip in (0..words).step_by(STRIP) {
            let offset = (first + strip) * WORD_BYTES;
            touch_ahead::<MODE, { STRIP * WORD_BYTES }>(dst.wrapping_add(offset), offset);
            // SAFETY: the strip ends at or before word `removed`, within len.
            let message = unsafe { take_strip::<MODE>(dst.wrapping_add(offset), src.add(offset)) };
            remove(&mut history[strip..strip + KEPT + STRIP], &message);
        }
        history.copy_within(words..words + KEPT, 0);
    }
    let mut carried = [0; REACH];
    for distance in DISTANCES {
        for (word, removed) in carried.iter_mut().zip(&history[KEPT - distance..KEPT]) {
            *word ^= removed;
        }
    }
    let offset = removed * WORD_BYTES;
    // SAFETY: what remains of len, at most REST_BYTES_MAX. The seed went into the first word, so the register is 0.
    unsafe {
        rest::<MODE>(
            dst.wrapping_add(offset),
            src.add(offset),
            len - offset,
            !0,
            &carried,
        )
    }
}

/// Keeps the compiler from reading the source a second time instead of keeping what it read: it turns a copy into a
/// local and a copy out of it into one copy, beside a hash of other bytes.
#[inline]
fn loaded_once() {
    compiler_fence(Ordering::SeqCst);
}

/// Loads a strip of words and stores it where the mode says.
#[inline]
unsafe fn take_strip<const MODE: u8>(dst: *mut u8, src: *const u8) -> [u64; STRIP] {
    // SAFETY: the caller has a strip at both pointers; words are read and written unaligned.
    unsafe {
        let words = src.cast::<[u64; STRIP]>().read_unaligned();
        loaded_once();
        match MODE {
            STORE => dst.cast::<[u64; STRIP]>().write_unaligned(words),
            STREAM => line::stream_line(dst, &words),
            _ => (),
        }
        words.map(u64::from_le)
    }
}

/// Appends a strip to the history: each word with what earlier ones were moved into it. `history` begins `KEPT`
/// words before the strip.
#[inline]
fn remove(history: &mut [u64], message: &[u64; STRIP]) {
    let (past, strip) = history.split_at_mut(KEPT);
    for i in 0..STRIP {
        let moved_here = DISTANCES.map(|distance| past[KEPT - distance + i]);
        strip[i] = moved_here
            .iter()
            .fold(message[i], |word, moved| word ^ moved);
    }
}

/// The last bytes: through private memory, combined with what was moved into them, hashed by tables.
unsafe fn rest<const MODE: u8>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    crc: u32,
    carried: &[u64],
) -> u32 {
    let mut block = [0_u8; if SHORT_BYTES > REST_BYTES_MAX {
        SHORT_BYTES
    } else {
        REST_BYTES_MAX
    }];
    let block = &mut block[..len];
    // SAFETY: the block holds len bytes, and so do both ranges.
    unsafe {
        src.copy_to_nonoverlapping(block.as_mut_ptr(), len);
        loaded_once();
        if MODE != HASH {
            block.as_ptr().copy_to_nonoverlapping(dst, len);
        }
        if MODE == STREAM {
            line::flush_range(dst, len);
        }
    }
    for (bytes, word) in block
        .as_chunks_mut::<WORD_BYTES>()
        .0
        .iter_mut()
        .zip(carried)
    {
        *bytes = (u64::from_le_bytes(*bytes) ^ word).to_le_bytes();
    }
    crc32c(crc, block)
}
