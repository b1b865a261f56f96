//! Cache lines: what moves one between this host's caches and the memory behind them, and the fences between.
//!
//! On x86-64 every function does what it says. Elsewhere there is no user-space instruction with the guarantee a
//! software-coherent region needs, so flushes are empty, fences are the language's, and [`reaches_memory`] is `false`:
//! a region may then be used by one host only.
//!
//! Flush and write-back are *not* ordered by themselves. A writer needs [`sfence`] after them, a reader that
//! invalidates needs [`mfence`] before it loads (Intel optimization manual, CLFLUSH: a later load may otherwise be
//! served by the line that is being dropped).

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes in a cache line.
pub const LINE_BYTES: usize = 64;

/// Instruction that [`flush_range`] uses on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// CLFLUSHOPT: writes back and drops, lines in parallel.
    Clflushopt,
    /// CLFLUSH: the same, one line after the other.
    Clflush,
    /// Nothing: lines cannot be flushed here.
    None,
}

/// True where a flush reaches the memory other hosts see; without it a region belongs to one host.
pub const fn reaches_memory() -> bool {
    cfg!(target_arch = "x86_64")
}

/// Writes every line that overlaps `ptr..ptr + len` back and drops it from all caches of this host.
///
/// # Safety
/// The range is mapped (readable) in this process; its contents do not matter.
#[inline]
pub unsafe fn flush_range(ptr: *const u8, len: usize) {
    // SAFETY: the caller's range is mapped, and a line never crosses a page.
    unsafe { arch::flush_range(ptr, len) }
}

/// Writes every line that overlaps `ptr..ptr + len` back; the caches may keep it clean. For a writer that reads on.
///
/// # Safety
/// As [`flush_range`].
#[inline]
pub unsafe fn writeback_range(ptr: *const u8, len: usize) {
    // SAFETY: as flush_range.
    unsafe { arch::writeback_range(ptr, len) }
}

/// Drops every line that overlaps `ptr..ptr + len`, so that a load after the next [`mfence`] comes from memory.
///
/// x86 has no drop without write-back: on a range this host never stores to, lines are clean and the two are equal.
///
/// # Safety
/// As [`flush_range`].
#[inline]
pub unsafe fn invalidate_range(ptr: *const u8, len: usize) {
    // SAFETY: as flush_range.
    unsafe { arch::flush_range(ptr, len) }
}

/// Starts to bring a line into the cache. A hint: any address is allowed, nothing is promised.
#[inline]
pub fn prefetch(ptr: *const u8) {
    arch::prefetch(ptr);
}

/// Orders earlier stores, non-temporal stores and flushes before later stores.
#[inline]
pub fn sfence() {
    arch::sfence();
}

/// Orders every earlier access and flush before every later one.
#[inline]
pub fn mfence() {
    arch::mfence();
}

/// The instruction flushes use here.
pub fn flush_kind() -> Flush {
    arch::flush_kind()
}

/// One line as eight words, each loaded once, lowest address first.
///
/// # Safety
/// `ptr` is 64-byte aligned and readable for 64 bytes. Other hosts and processes may store to it meanwhile.
#[inline]
pub unsafe fn load_line(ptr: *const u8) -> [u64; 8] {
    #[expect(clippy::cast_ptr_alignment, reason = "aligned by contract")]
    let words = ptr.cast::<AtomicU64>();
    // SAFETY: aligned and readable by contract; atomic words make a concurrent store a value, not undefined behaviour.
    core::array::from_fn(|i| unsafe { (*words.add(i)).load(Ordering::Relaxed) })
}

/// Stores one line word by word, lowest address first. The caller orders and flushes.
///
/// # Safety
/// `ptr` is 64-byte aligned and writable for 64 bytes.
#[inline]
pub unsafe fn store_line(ptr: *mut u8, line: &[u64; 8]) {
    #[expect(clippy::cast_ptr_alignment, reason = "aligned by contract")]
    let words = ptr.cast::<AtomicU64>();
    for (i, word) in line.iter().enumerate() {
        // SAFETY: aligned and writable by contract.
        unsafe { (*words.add(i)).store(*word, Ordering::Relaxed) };
    }
}

/// Stores one line on its way to memory: non-temporally where the CPU can, ordinarily elsewhere.
///
/// # Safety
/// `ptr` is 64-byte aligned and writable for 64 bytes.
#[inline]
pub unsafe fn stream_line(ptr: *mut u8, line: &[u64; 8]) {
    // SAFETY: passed on.
    unsafe { arch::stream_line(ptr, line) }
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use super::{Flush, LINE_BYTES};
    use core::arch::asm;
    use core::arch::x86_64::{
        __m128i, _MM_HINT_T0, _mm_clflush, _mm_loadu_si128, _mm_mfence, _mm_prefetch, _mm_sfence,
        _mm_stream_si128,
    };
    use core::sync::atomic::{AtomicU8, Ordering};

    const KNOWN: u8 = 1;
    const CLFLUSHOPT: u8 = 2;
    const CLWB: u8 = 4;

    /// What CPUID said, `KNOWN` once asked. Relaxed: every thread computes the same byte.
    static ABILITIES: AtomicU8 = AtomicU8::new(0);

    #[inline]
    fn abilities() -> u8 {
        match ABILITIES.load(Ordering::Relaxed) {
            0 => ask(),
            known => known,
        }
    }

    #[cold]
    fn ask() -> u8 {
        let leaf = raw_cpuid::CpuId::new().get_extended_feature_info();
        let mut found = KNOWN;
        if leaf
            .as_ref()
            .is_some_and(raw_cpuid::ExtendedFeatures::has_clflushopt)
        {
            found |= CLFLUSHOPT;
        }
        if leaf
            .as_ref()
            .is_some_and(raw_cpuid::ExtendedFeatures::has_clwb)
        {
            found |= CLWB;
        }
        ABILITIES.store(found, Ordering::Relaxed);
        found
    }

    pub(super) fn flush_kind() -> Flush {
        if abilities() & CLFLUSHOPT == 0 {
            Flush::Clflush
        } else {
            Flush::Clflushopt
        }
    }

    /// First byte of the first line and one past the range: empty ranges touch nothing.
    #[inline]
    fn lines(ptr: *const u8, len: usize) -> impl Iterator<Item = *const u8> {
        let skew = if len == 0 { 0 } else { ptr.addr() % LINE_BYTES };
        let first = ptr.wrapping_sub(skew);
        (0..len + skew)
            .step_by(LINE_BYTES)
            .map(move |offset| first.wrapping_add(offset))
    }

    #[inline]
    pub(super) unsafe fn flush_range(ptr: *const u8, len: usize) {
        if abilities() & CLFLUSHOPT == 0 {
            // SAFETY: every line overlaps the caller's mapped range.
            lines(ptr, len).for_each(|line| unsafe { _mm_clflush(line) });
        } else {
            // SAFETY: as above, and CPUID has CLFLUSHOPT.
            lines(ptr, len).for_each(|line| unsafe {
                asm!("clflushopt [{0}]", in(reg) line, options(nostack, preserves_flags));
            });
        }
    }

    #[inline]
    pub(super) unsafe fn writeback_range(ptr: *const u8, len: usize) {
        if abilities() & CLWB == 0 {
            // SAFETY: same contract.
            return unsafe { flush_range(ptr, len) };
        }
        // SAFETY: every line overlaps the caller's mapped range, and CPUID has CLWB.
        lines(ptr, len).for_each(|line| unsafe {
            asm!("clwb [{0}]", in(reg) line, options(nostack, preserves_flags));
        });
    }

    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "aligned by contract")]
    pub(super) unsafe fn stream_line(ptr: *mut u8, line: &[u64; 8]) {
        let (dst, src) = (ptr.cast::<__m128i>(), line.as_ptr().cast::<__m128i>());
        for i in 0..LINE_BYTES / 16 {
            // SAFETY: SSE2 is part of x86-64; both hold a line, the destination is aligned.
            unsafe { _mm_stream_si128(dst.add(i), _mm_loadu_si128(src.add(i))) };
        }
    }

    #[inline]
    pub(super) fn prefetch(ptr: *const u8) {
        // SAFETY: SSE is part of x86-64; a prefetch of any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ptr.cast()) };
    }

    #[inline]
    pub(super) fn sfence() {
        // SAFETY: SSE is part of x86-64.
        unsafe { _mm_sfence() }
    }

    #[inline]
    pub(super) fn mfence() {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_mfence() }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod arch {
    use super::Flush;
    use core::sync::atomic::{Ordering, fence};

    pub(super) fn flush_kind() -> Flush {
        Flush::None
    }

    #[inline]
    pub(super) unsafe fn flush_range(_ptr: *const u8, _len: usize) {}

    #[inline]
    pub(super) unsafe fn writeback_range(_ptr: *const u8, _len: usize) {}

    #[inline]
    pub(super) unsafe fn stream_line(ptr: *mut u8, line: &[u64; 8]) {
        // SAFETY: the caller has a line.
        unsafe { super::store_line(ptr, line) };
    }

    #[inline]
    pub(super) fn prefetch(_ptr: *const u8) {}

    #[inline]
    pub(super) fn sfence() {
        fence(Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn mfence() {
        fence(Ordering::SeqCst);
    }
}
