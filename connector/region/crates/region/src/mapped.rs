//! [`Memory`] on a real mapping: each method is its instruction.
//!
//! Every access is checked against the mapping, so the type is safe to use with any place: out of range it reads 0,
//! stores nothing and counts. No Rust reference into the mapping ever exists, only raw pointers and atomics: other
//! processes and hosts store there at any time.

use crate::buffers::Piece;
use crate::layout::LINE;
use crate::memory::{Memory, Step};
use crate::os::map::Mapping;
use hymcache_copy::{Choice, line};
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped region.
pub struct Mapped {
    mapping: Mapping,
    choice: Choice,
    strays: AtomicU64,
}

impl Mapped {
    /// Wraps a mapping; the kernels of `choice` move its bytes.
    pub const fn new(mapping: Mapping, choice: Choice) -> Self {
        Self {
            mapping,
            choice,
            strays: AtomicU64::new(0),
        }
    }

    /// The mapping.
    pub const fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The kernels in use.
    pub const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Accesses that were refused because they lay outside the mapping: damage that a check let through.
    pub fn strays(&self) -> u64 {
        self.strays.load(Ordering::Relaxed)
    }

    #[cold]
    fn stray(&self) {
        self.strays.fetch_add(1, Ordering::Relaxed);
    }

    /// Address of a range inside the mapping.
    #[inline]
    pub(crate) fn range(&self, at: u64, len: u64) -> Option<*mut u8> {
        let end = at.checked_add(len)?;
        if end <= self.mapping.len() {
            return Some(self.mapping.base().wrapping_add(at as usize));
        }
        self.stray();
        None
    }

    #[inline]
    fn word(&self, at: u64) -> Option<&AtomicU64> {
        if !at.is_multiple_of(8) {
            self.stray();
            return None;
        }
        #[expect(
            clippy::cast_ptr_alignment,
            reason = "checked above; the mapping is page-aligned"
        )]
        let word = self.range(at, 8)?.cast::<AtomicU64>();
        // SAFETY: in the mapping, which lives as long as self; aligned; and an atomic may be stored to by anyone. Where
        // the medium has a hole the access faults and the handler of os::sigbus puts a page there.
        Some(unsafe { &*word })
    }
}

/// The lines that a range overlaps, as a range.
fn lines(at: u64, len: u64) -> (u64, u64) {
    let first = at - at % LINE;
    (first, (at + len).next_multiple_of(LINE) - first)
}

impl Memory for Mapped {
    #[inline]
    fn load(&self, at: u64) -> u64 {
        // SeqCst: list_write and is_written (sweep) decide by a store on one side and a load on the other.
        self.word(at).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    #[inline]
    fn store(&self, at: u64, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::Release);
        }
    }

    #[inline]
    fn cas(&self, at: u64, old: u64, new: u64) -> Result<u64, u64> {
        self.word(at).map_or(Err(0), |word| {
            word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
        })
    }

    #[inline]
    fn add(&self, at: u64, value: u64) -> u64 {
        self.word(at)
            .map_or(0, |word| word.fetch_add(value, Ordering::SeqCst))
    }

    #[inline]
    fn flush(&self, at: u64, len: u64, _: Step) {
        let (at, len) = lines(at, len);
        if let Some(ptr) = self.range(at, len) {
            // SAFETY: in the mapping.
            unsafe { line::writeback_range(ptr, len as usize) };
        }
    }

    #[inline]
    fn invalidate(&self, at: u64, len: u64, _: Step) {
        let (at, len) = lines(at, len);
        if let Some(ptr) = self.range(at, len) {
            // SAFETY: in the mapping.
            unsafe { line::invalidate_range(ptr, len as usize) };
        }
    }

    #[inline]
    fn store_fence(&self, _: Step) {
        line::sfence();
    }

    #[inline]
    fn full_fence(&self, _: Step) {
        line::mfence();
    }

    #[inline]
    fn prefetch(&self, at: u64) {
        if let Some(ptr) = self.range(at, LINE) {
            line::prefetch(ptr);
        }
    }

    #[inline]
    fn copy_in(&self, at: u64, from: Piece, crc: u32) -> Option<u32> {
        let to = self.range(at, from.len() as u64)?;
        // SAFETY: `to` lies in the mapping and `from` is vouched for by its maker; the caller's memory and the mapping
        // do not overlap, as nothing outside this crate gets the mapping's address writable.
        Some(unsafe { (self.choice.put_copy())(to, from.address(), from.len(), crc) })
    }

    #[inline]
    fn copy_out(&self, at: u64, to: Piece, crc: u32, whole: u64) -> Option<u32> {
        let from = self.range(at, to.len() as u64)?;
        let copy = self.choice.get_copy(whole as usize);
        // SAFETY: as copy_in, the other way round. The kernel loads each byte once, so that what it hashes is what it
        // stores even when another host overwrites the source meanwhile.
        Some(unsafe { copy(to.address(), from, to.len(), crc) })
    }

    #[inline]
    fn crc(&self, crc: u32, bytes: &[u8]) -> u32 {
        // SAFETY: a slice is readable for its length.
        unsafe { (self.choice.crc())(bytes.as_ptr(), bytes.len(), crc) }
    }

    #[inline]
    fn is_intact(&self) -> bool {
        self.mapping.is_intact()
    }
}
