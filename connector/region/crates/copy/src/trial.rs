//! Timed copies on the memory that is calibrated, out of cold caches.

use core::cell::Cell;
use std::time::Instant;

use crate::calibrate::Medium;
use crate::choice::Stores;
use crate::kernel::{CopyFn, Kernel};
use crate::line;

/// Bytes of one timed copy: long against the clock, short against the budget.
const WINDOW_BYTES: usize = 512 * 1024;
/// Bytes a kernel is given at a time, about a KV cache's page: some kernels copy fast and hash the end of each slowly.
const PIECE_BYTES: usize = 32 * 1024;
/// Windows of the medium at most: more pages than a TLB holds, few enough to prepare within the budget.
const WINDOWS_MAX: usize = 48;
/// Private windows start off the page: equal offsets within a page on both sides slow some CPUs down.
const SKEW: usize = 192;

/// A kernel with one kind of stores.
#[derive(Clone, Copy)]
pub(crate) struct Entrant {
    pub(crate) kernel: &'static Kernel,
    pub(crate) stores: Stores,
}

impl Entrant {
    pub(crate) fn streaming(kernel: &'static Kernel) -> Self {
        Self {
            kernel,
            stores: Stores::NonTemporal,
        }
    }

    pub(crate) fn cached(kernel: &'static Kernel) -> Self {
        Self {
            kernel,
            stores: Stores::Ordinary,
        }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.kernel.id == other.kernel.id && self.stores == other.stores
    }

    fn copy(&self) -> CopyFn {
        match self.stores {
            Stores::Ordinary => self.kernel.copy_crc,
            Stores::NonTemporal => self.kernel.copy_nt_crc,
        }
    }
}

/// The trials of both directions, and the private memory at their engine's end.
pub(crate) struct Bench {
    pub(crate) get: Trial,
    pub(crate) put: Trial,
    _private: Vec<u8>,
}

impl Bench {
    /// `None` for a medium below a window.
    pub(crate) fn new(medium: &Medium) -> Option<Self> {
        let readable = Windows::of(medium.readable.cast_mut())?;
        // Two windows, skewed by 192 and 2240 bytes from a page: alignment and skews take at most 6335 spare bytes.
        let mut private = vec![1_u8; 2 * (WINDOW_BYTES + 4096)];
        let start = private.as_mut_ptr();
        let first = start.wrapping_add(start.align_offset(4096) + SKEW);
        let second = first.wrapping_add(WINDOW_BYTES + 2048);
        let one = |start| Windows { start, count: 1 };
        let target = medium.scratch.and_then(Windows::of).unwrap_or(one(second));
        let get = Trial {
            dst: one(first),
            src: readable,
            turn: Cell::new(0),
        };
        let put = Trial {
            dst: target,
            src: one(first),
            turn: Cell::new(0),
        };
        Some(Self {
            get,
            put,
            _private: private,
        })
    }

    /// Maps every page and empties the caches of it, so that no copy pays for a fault or profits from a cache.
    ///
    /// # Safety
    /// The medium's ranges are mapped as [`crate::calibrate()`] demands.
    pub(crate) unsafe fn prepare(&self) {
        for windows in [&self.get.src, &self.get.dst, &self.put.dst] {
            for window in (0..windows.count).map(|turn| windows.at(turn)) {
                // SAFETY: the windows are mapped.
                unsafe {
                    for page in (0..WINDOW_BYTES).step_by(4096) {
                        window.add(page).read_volatile();
                    }
                    line::flush_range(window, WINDOW_BYTES);
                }
            }
        }
        line::mfence();
    }
}

/// Neighbouring windows, used in turn.
#[derive(Clone, Copy)]
struct Windows {
    start: *mut u8,
    count: usize,
}

impl Windows {
    fn of(range: *mut [u8]) -> Option<Self> {
        let count = (range.len() / WINDOW_BYTES).min(WINDOWS_MAX);
        (count > 0).then_some(Self {
            start: range.cast(),
            count,
        })
    }

    fn at(&self, turn: usize) -> *mut u8 {
        self.start.wrapping_add(turn % self.count * WINDOW_BYTES)
    }
}

/// From where to where, and how many copies there have been.
pub(crate) struct Trial {
    dst: Windows,
    src: Windows,
    turn: Cell<usize>,
}

impl Trial {
    /// One copy between windows that are in no cache, and whose pages the TLB has forgotten where there are enough
    /// windows. Ordinary stores pay for their way to memory too: copies add up to more than a cache holds, and
    /// somebody waits for the write-back.
    ///
    /// # Safety
    /// The medium's ranges are mapped as [`crate::calibrate()`] demands.
    pub(crate) unsafe fn seconds(&self, entrant: Entrant) -> f64 {
        let turn = self.turn.replace(self.turn.get() + 1);
        let (dst, src) = (self.dst.at(turn), self.src.at(turn));
        // SAFETY: both windows are valid and apart.
        unsafe {
            let started = Instant::now();
            let mut crc = 0;
            for piece in (0..WINDOW_BYTES).step_by(PIECE_BYTES) {
                crc = entrant.copy()(dst.add(piece), src.add(piece), PIECE_BYTES, crc);
            }
            core::hint::black_box(crc);
            if entrant.stores == Stores::Ordinary {
                line::writeback_range(dst, WINDOW_BYTES);
            }
            line::sfence();
            let seconds = started.elapsed().as_secs_f64();
            line::flush_range(dst, WINDOW_BYTES);
            line::flush_range(src, WINDOW_BYTES);
            line::mfence();
            seconds
        }
    }
}
