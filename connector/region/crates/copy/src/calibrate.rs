//! Choosing kernels by measurement on the memory they will work on.
//!
//! A choice starts from the expected kernel; every other one may challenge. A round times both, one after the other,
//! on lines that are in no cache; a challenger takes over when it is more than 5 % faster in three of four rounds. So
//! noise keeps the expected kernel, and a machine where expectations are wrong overrules them.

use core::time::Duration;
use std::time::Instant;

use crate::choice::{Choice, Stores};
use crate::kernel::{Kernel, kernels};
use crate::trial::{Bench, Entrant, Trial};

/// What a calibration may take: it runs when a region is attached.
const BUDGET: Duration = Duration::from_millis(50);
const ROUNDS: u32 = 4;
const ROUNDS_TO_WIN: u32 = 3;
const SURVEY_ROUNDS: usize = 9;
/// A challenger's time must stay below this share of the champion's.
const SHARE_TO_WIN: f64 = 1.0 / 1.05;

/// The memory to calibrate on.
#[derive(Clone, Copy, Debug)]
pub struct Medium<'a> {
    /// What it is ("dram", "cxl"): one choice is remembered for each.
    pub name: &'a str,
    /// Mapped bytes of it, up to 24 MiB of which are read for the get; below 512 KiB nothing is measured and the
    /// expected kernels are taken.
    pub readable: *const [u8],
    /// Mapped bytes of it that nobody uses, up to 24 MiB of which are overwritten for the put. Without them the put is
    /// measured on private memory.
    pub scratch: Option<*mut [u8]>,
}

/// Measures, within 50 ms and at the end of a trial. Best after the medium's pages have been populated.
///
/// # Safety
/// `readable` is mapped for reading (its bytes may change meanwhile); `scratch` is mapped for writing, and no other
/// code uses it during the call. They do not overlap.
pub unsafe fn calibrate(medium: &Medium) -> Choice {
    let mut choice = Choice::guess();
    let deadline = Instant::now() + BUDGET;
    let Some(bench) = Bench::new(medium) else {
        return choice;
    };
    // SAFETY: the caller's contract is the bench's.
    unsafe {
        bench.prepare();
        let puts = kernels().iter().map(Entrant::streaming);
        choice.put = tournament(&bench.put, Entrant::streaming(choice.put), puts, deadline).kernel;
        let winner = tournament(
            &bench.get,
            Entrant::streaming(choice.get),
            get_entrants(),
            deadline,
        );
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

/// Every kernel against the expected one, on the memory [`calibrate()`] uses and without its deadline: for people who
/// want to see why a kernel was chosen. Empty for a medium too small to measure.
///
/// # Safety
/// As [`calibrate()`].
pub unsafe fn survey(medium: &Medium) -> Vec<Measured> {
    let choice = Choice::guess();
    let Some(bench) = Bench::new(medium) else {
        return Vec::new();
    };
    let measure = |put: bool, entrant: Entrant| {
        let (trial, expected) = if put {
            (&bench.put, choice.put)
        } else {
            (&bench.get, choice.get)
        };
        // SAFETY: the caller's contract is the bench's.
        let seconds = |entrant| unsafe { trial.seconds(entrant) };
        let mut ratios =
            [(); SURVEY_ROUNDS].map(|()| seconds(Entrant::streaming(expected)) / seconds(entrant));
        ratios.sort_by(f64::total_cmp);
        Measured {
            kernel: entrant.kernel,
            stores: entrant.stores,
            put,
            ratio: ratios[SURVEY_ROUNDS / 2],
        }
    };
    // SAFETY: as above.
    unsafe { bench.prepare() };
    let puts = kernels()
        .iter()
        .map(|kernel| measure(true, Entrant::streaming(kernel)));
    puts.chain(get_entrants().map(|entrant| measure(false, entrant)))
        .collect()
}

/// A get may go past the cache or through it.
fn get_entrants() -> impl Iterator<Item = Entrant> {
    kernels()
        .iter()
        .map(Entrant::streaming)
        .chain(kernels().iter().map(Entrant::cached))
}

/// The last champion when every challenger has had its rounds or the time is up.
unsafe fn tournament(
    trial: &Trial,
    mut champion: Entrant,
    challengers: impl Iterator<Item = Entrant>,
    deadline: Instant,
) -> Entrant {
    for challenger in challengers {
        if Instant::now() >= deadline {
            break;
        }
        // SAFETY: passed on.
        if !challenger.is(&champion) && unsafe { beats(trial, challenger, champion) } {
            champion = challenger;
        }
    }
    champion
}

unsafe fn beats(trial: &Trial, challenger: Entrant, champion: Entrant) -> bool {
    // SAFETY: passed on. Who runs first alternates.
    takes_over(|round| unsafe {
        if round % 2 == 0 {
            let new = trial.seconds(challenger);
            (new, trial.seconds(champion))
        } else {
            let old = trial.seconds(champion);
            (trial.seconds(challenger), old)
        }
    })
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
        let bytes = vec![0_u8; 1 << 20];
        let medium = Medium {
            name: "test",
            readable: &raw const bytes[..],
            scratch: None,
        };
        let bench = Bench::new(&medium).expect("large enough");
        let challengers = kernels().iter().map(Entrant::streaming);
        // SAFETY: the deadline has passed, nothing is copied.
        let winner = unsafe {
            tournament(
                &bench.get,
                Entrant::streaming(&STUB),
                challengers,
                Instant::now(),
            )
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
