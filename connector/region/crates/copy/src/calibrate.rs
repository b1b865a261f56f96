//! Choosing kernels by measurement on the memory they will work on.
//!
//! A choice starts from the expected kernel; every other one may challenge. A round times both, one after the other,
//! on lines that are in no cache; a challenger takes over when it is more than 5 % faster in three of four rounds. So
//! noise keeps the expected kernel, and a machine where expectations are wrong overrules them.

use core::time::Duration;
use std::time::Instant;

use crate::choice::{Choice, Stores};
use crate::kernel::{CopyFn, Kernel, kernels};
use crate::line;

/// What a calibration may take: it runs when a region is attached.
const BUDGET: Duration = Duration::from_millis(50);
/// Bytes of one timed copy: long against the clock and against a kernel's start, short against the budget.
const WINDOW_BYTES: usize = 512 * 1024;
const SURVEY_ROUNDS: usize = 9;
const ROUNDS: u32 = 4;
const ROUNDS_TO_WIN: u32 = 3;
/// A challenger's time must stay below this share of the champion's.
const SHARE_TO_WIN: f64 = 1.0 / 1.05;
/// Private buffers start off the page: equal offsets within a page on both sides slow some CPUs down.
const SKEW: usize = 192;

/// The memory to calibrate on.
#[derive(Clone, Copy, Debug)]
pub struct Medium<'a> {
    /// What it is ("dram", "cxl"): one choice is remembered for each.
    pub name: &'a str,
    /// Mapped bytes of it, read for the get; below 512 KiB nothing is measured and the expected kernel is taken.
    pub readable: *const [u8],
    /// Mapped bytes of it that nobody uses, overwritten for the put. Without them the put is measured on private
    /// memory.
    pub scratch: Option<*mut [u8]>,
}

/// Measures, within 50 ms and at the end of a trial.
///
/// # Safety
/// `readable` is mapped for reading (its bytes may change meanwhile); `scratch` is mapped for writing, and no other
/// code uses it during the call.
pub unsafe fn calibrate(medium: &Medium) -> Choice {
    let mut choice = Choice::guess();
    let deadline = Instant::now() + BUDGET;
    let Some(bench) = Bench::new(medium) else {
        return choice;
    };
    // SAFETY: the bench's windows, on the medium by contract.
    unsafe {
        touch(bench.get.src);
        let winner =
            bench
                .put
                .tournament(stream(choice.put), kernels().iter().map(stream), deadline);
        choice.put = winner.kernel;
        let winner = bench
            .get
            .tournament(stream(choice.get), get_entrants(), deadline);
        (choice.get, choice.get_stores) = (winner.kernel, winner.stores);
    }
    choice
}

/// One line of the table behind a choice.
#[derive(Clone, Copy)]
pub struct Measured {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// How it stored.
    pub stores: Stores,
    /// True for a put, false for a get.
    pub put: bool,
    /// How many times as fast as the expected kernel: the median of paired rounds.
    pub ratio: f64,
}

/// Every kernel against the expected one, on the memory [`calibrate`] uses and without its deadline: for people who
/// want to see why a kernel was chosen. Empty for a medium too small to measure.
///
/// # Safety
/// As [`calibrate`].
pub unsafe fn survey(medium: &Medium) -> Vec<Measured> {
    let expected = stream(Choice::guess().get);
    let Some(bench) = Bench::new(medium) else {
        return Vec::new();
    };
    let measure = |trial: &Trial, put: bool, entrant: Entrant| {
        // SAFETY: the bench's windows, on the medium by contract.
        let mut ratios = [(); SURVEY_ROUNDS]
            .map(|()| unsafe { trial.seconds(expected) / trial.seconds(entrant) });
        ratios.sort_by(f64::total_cmp);
        Measured {
            kernel: entrant.kernel,
            stores: entrant.stores,
            put,
            ratio: ratios[SURVEY_ROUNDS / 2],
        }
    };
    // SAFETY: as above.
    unsafe { touch(bench.get.src) };
    let puts = kernels()
        .iter()
        .map(|kernel| measure(&bench.put, true, stream(kernel)));
    puts.chain(get_entrants().map(|entrant| measure(&bench.get, false, entrant)))
        .collect()
}

fn stream(kernel: &'static Kernel) -> Entrant {
    Entrant {
        kernel,
        stores: Stores::NonTemporal,
    }
}

/// A get may go past the cache or through it.
fn get_entrants() -> impl Iterator<Item = Entrant> {
    let cached = |kernel| Entrant {
        kernel,
        stores: Stores::Ordinary,
    };
    kernels()
        .iter()
        .map(stream)
        .chain(kernels().iter().map(cached))
}

/// The windows of both trials, some of them in private memory that lives as long.
struct Bench {
    get: Trial,
    put: Trial,
    _private: Vec<u8>,
}

impl Bench {
    /// `None` for a medium below a window.
    fn new(medium: &Medium) -> Option<Self> {
        if medium.readable.len() < WINDOW_BYTES {
            return None;
        }
        // Two windows, skewed by 192 and 2240 bytes from a page: alignment and skews take at most 6335 spare bytes.
        let mut private = vec![1_u8; 2 * (WINDOW_BYTES + 4096)];
        let start = private.as_mut_ptr();
        let first = start.wrapping_add(start.align_offset(4096) + SKEW);
        let second = first.wrapping_add(WINDOW_BYTES + 2048);
        let scratch = medium
            .scratch
            .filter(|scratch| scratch.len() >= WINDOW_BYTES);
        let get = Trial {
            dst: first,
            src: medium.readable.cast(),
        };
        let put = Trial {
            dst: scratch.map_or(second, <*mut [u8]>::cast),
            src: first,
        };
        Some(Self {
            get,
            put,
            _private: private,
        })
    }
}

/// Brings a window's pages into this process's page table, so that no trial pays for a fault.
unsafe fn touch(window: *const u8) {
    for page in (0..WINDOW_BYTES).step_by(4096) {
        // SAFETY: the caller's window is readable.
        unsafe { window.add(page).read_volatile() };
    }
}

#[derive(Clone, Copy)]
struct Entrant {
    kernel: &'static Kernel,
    stores: Stores,
}

impl Entrant {
    fn copy(&self) -> CopyFn {
        match self.stores {
            Stores::Ordinary => self.kernel.copy_crc,
            Stores::NonTemporal => self.kernel.copy_nt_crc,
        }
    }

    fn is(&self, other: &Self) -> bool {
        self.kernel.id == other.kernel.id && self.stores == other.stores
    }
}

/// Two windows of `WINDOW_BYTES`, apart.
struct Trial {
    dst: *mut u8,
    src: *const u8,
}

impl Trial {
    unsafe fn tournament(
        &self,
        mut champion: Entrant,
        challengers: impl Iterator<Item = Entrant>,
        deadline: Instant,
    ) -> Entrant {
        for challenger in challengers {
            if Instant::now() >= deadline {
                break;
            }
            // SAFETY: passed on.
            if !challenger.is(&champion) && unsafe { self.beats(challenger, champion) } {
                champion = challenger;
            }
        }
        champion
    }

    /// True when the challenger wins enough rounds; stops as soon as it cannot.
    unsafe fn beats(&self, challenger: Entrant, champion: Entrant) -> bool {
        let (mut won, mut lost) = (0, 0);
        while won < ROUNDS_TO_WIN && lost <= ROUNDS - ROUNDS_TO_WIN {
            // SAFETY: passed on. Who runs first alternates.
            let (new, old) = unsafe {
                if (won + lost) % 2 == 0 {
                    let new = self.seconds(challenger);
                    (new, self.seconds(champion))
                } else {
                    let old = self.seconds(champion);
                    (self.seconds(challenger), old)
                }
            };
            if new < old * SHARE_TO_WIN {
                won += 1;
            } else {
                lost += 1;
            }
        }
        won == ROUNDS_TO_WIN
    }

    /// One copy between windows that are in no cache. Ordinary stores pay for their way to memory too: copies add up
    /// to more than a cache holds, and somebody waits for the write-back.
    unsafe fn seconds(&self, entrant: Entrant) -> f64 {
        // SAFETY: both windows are valid and apart.
        unsafe {
            line::flush_range(self.dst, WINDOW_BYTES);
            line::flush_range(self.src, WINDOW_BYTES);
            line::mfence();
            let started = Instant::now();
            core::hint::black_box(entrant.copy()(self.dst, self.src, WINDOW_BYTES, 0));
            if entrant.stores == Stores::Ordinary {
                line::writeback_range(self.dst, WINDOW_BYTES);
            }
            line::sfence();
            started.elapsed().as_secs_f64()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(dst: *mut u8, src: *const u8, len: usize, crc: u32) -> u32 {
        std::thread::sleep(Duration::from_millis(1));
        // SAFETY: as the kernel contract.
        unsafe { (crate::portable::KERNEL.copy_nt_crc)(dst, src, len, crc) }
    }

    static SLOW: Kernel = Kernel {
        id: 900,
        name: "slow",
        copy_nt_crc: slow,
        ..crate::portable::KERNEL
    };
    static FAST: Kernel = crate::portable::KERNEL;

    fn with_trial<R>(run: impl FnOnce(&Trial) -> R) -> R {
        let mut dst = vec![0_u8; WINDOW_BYTES + 64];
        let src = vec![7_u8; WINDOW_BYTES];
        let aligned = dst.as_mut_ptr().wrapping_add(dst.as_ptr().align_offset(64));
        run(&Trial {
            dst: aligned,
            src: src.as_ptr(),
        })
    }

    fn entrant(kernel: &'static Kernel) -> Entrant {
        Entrant {
            kernel,
            stores: Stores::NonTemporal,
        }
    }

    #[test]
    fn a_clearly_faster_challenger_takes_over_and_a_slower_one_does_not() {
        let later = Instant::now() + Duration::from_secs(60);
        let winner = |champion, challenger: &'static Kernel| {
            let challengers = std::iter::once(entrant(challenger));
            // SAFETY: with_trial's windows.
            with_trial(|trial| unsafe { trial.tournament(entrant(champion), challengers, later) })
                .kernel
                .id
        };
        assert_eq!(winner(&SLOW, &FAST), FAST.id);
        assert_eq!(winner(&FAST, &SLOW), FAST.id);
    }

    #[test]
    fn after_the_deadline_the_champion_stays() {
        let now = Instant::now();
        let challengers = std::iter::once(entrant(&FAST));
        // SAFETY: with_trial's windows.
        let winner =
            with_trial(|trial| unsafe { trial.tournament(entrant(&SLOW), challengers, now) });
        assert_eq!(winner.kernel.id, SLOW.id);
    }

    #[test]
    fn a_medium_too_small_to_measure_gives_the_expected_kernel() {
        let few = [0_u8; 4096];
        let medium = Medium {
            name: "few",
            readable: &raw const few[..],
            scratch: None,
        };
        // SAFETY: an array.
        let choice = unsafe { calibrate(&medium) };
        assert_eq!(choice.put.id, Choice::guess().put.id);
    }
}
