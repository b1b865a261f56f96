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
    let choice = Choice::guess();
    let Some(bench) = Bench::new(medium) else {
        return Vec::new();
    };
    let measure = |trial: &Trial, put: bool, entrant: Entrant| {
        let expected = stream(if put { choice.put } else { choice.get });
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

/// True when the challenger wins enough rounds; ends as soon as it has or cannot. `round` gives the challenger's and
/// the champion's seconds.
fn takes_over(mut round: impl FnMut(u32) -> (f64, f64)) -> bool {
    let (mut won, mut lost) = (0, 0);
    while won < ROUNDS_TO_WIN && lost <= ROUNDS - ROUNDS_TO_WIN {
        let (challenger, champion) = round(won + lost);
        if challenger < champion * SHARE_TO_WIN {
            won += 1;
        } else {
            lost += 1;
        }
    }
    won == ROUNDS_TO_WIN
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

    unsafe fn beats(&self, challenger: Entrant, champion: Entrant) -> bool {
        // SAFETY: passed on. Who runs first alternates.
        takes_over(|round| unsafe {
            if round % 2 == 0 {
                let new = self.seconds(challenger);
                (new, self.seconds(champion))
            } else {
                let old = self.seconds(champion);
                (self.seconds(challenger), old)
            }
        })
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

    /// What comes of rounds in which the challenger takes these times and the champion always 1; and how many ran.
    fn played(times: &[f64]) -> (bool, usize) {
        let mut rounds = times.iter();
        let won = takes_over(|_| (*rounds.next().expect("no more rounds than four"), 1.0));
        (won, times.len() - rounds.len())
    }

    #[test]
    fn a_challenger_takes_over_with_three_clear_rounds_of_four() {
        assert_eq!(played(&[0.9, 0.9, 0.9, 1.0]), (true, 3));
        assert_eq!(played(&[2.0, 0.9, 0.9, 0.9]), (true, 4));
        assert_eq!(played(&[0.9, 2.0, 0.9, 0.9]), (true, 4));
    }

    #[test]
    fn noise_and_small_advantages_keep_the_champion() {
        assert_eq!(played(&[0.9, 1.1, 1.1, 0.9]), (false, 3));
        assert_eq!(played(&[0.96, 0.96, 0.9, 0.9]), (false, 2));
        assert_eq!(played(&[1.0, 1.0, 0.1, 0.1]), (false, 2));
    }

    #[test]
    fn after_the_deadline_the_champion_stays() {
        static STUB: Kernel = Kernel {
            id: 900,
            ..crate::portable::KERNEL
        };
        let trial = Trial {
            dst: core::ptr::null_mut(),
            src: core::ptr::null(),
        };
        // SAFETY: the deadline has passed, nothing is copied.
        let winner = unsafe {
            trial.tournament(stream(&STUB), kernels().iter().map(stream), Instant::now())
        };
        assert_eq!(winner.kernel.id, STUB.id);
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
