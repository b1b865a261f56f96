//! The shipping protocol on a model that loses, delays, reorders and crashes: `world` says what may happen, `scenario`
//! and `stage` who does what, `mutants` what is left out.
//!
//! Runs are named by their seed. `HYMCACHE_ADVERSARY_STEPS` sets how many steps the clean runs take.

mod actor;
mod crash;
mod damage;
mod epochs;
mod fresh;
mod hole;
mod late;
mod mutants;
mod owners;
mod retired;
mod rings;
mod scenario;
mod stage;
mod twice;
mod world;

use actor::Mutation;
use mutants::CRCS;
use scenario::{Fault, Faults, Outcome, run};

fn steps_wanted() -> u64 {
    std::env::var("HYMCACHE_ADVERSARY_STEPS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(5_000_000)
}

type Run = fn(u64, &Mutation, Faults) -> Outcome;

fn expect_clean(mutation: &Mutation, faults: Faults, share: u64) {
    expect_clean_in(run, mutation, faults, share);
}

/// Runs seeds until the steps are done; fails with the seed of the first wrong run.
fn expect_clean_in(run: Run, mutation: &Mutation, faults: Faults, share: u64) {
    let (mut steps, mut seed, mut total) = (0, 1, Outcome::default());
    while steps < steps_wanted() / share {
        let outcome = run(seed, mutation, faults);
        assert!(outcome.wrong.is_empty(), "seed {seed}: {:?}", outcome.wrong);
        steps += outcome.steps;
        seed += 1;
        total.hits += outcome.hits;
        total.stored += outcome.stored;
        total.crashes += outcome.crashes;
    }
    // A run in which nothing happens proves nothing.
    assert!(
        total.hits > 20 && total.stored > 20,
        "{} hits, {} stored",
        total.hits,
        total.stored
    );
    assert!(
        total.crashes > 10 || !faults.contains(&Fault::Crashes),
        "{} crashes",
        total.crashes
    );
}

#[test]
fn ordering_alone_is_enough() {
    expect_clean(&Mutation::default().and_blind(&CRCS), NONE, 2);
}

#[test]
fn ordering_alone_survives_crashes_at_any_step() {
    expect_clean(&Mutation::default().and_blind(&CRCS), CRASHES, 2);
}

#[test]
fn ordering_alone_survives_crashes_of_puts_in_three_processes() {
    expect_clean(&Mutation::default().and_blind(&CRCS), SPLIT_CRASHES, 2);
}

#[test]
fn checksums_stop_late_write_backs() {
    expect_clean(&Mutation::default(), LATE_CRASHES, 2);
}

const NONE: Faults = &[];
const CRASHES: Faults = &[Fault::Crashes];
const SPLIT_CRASHES: Faults = &[Fault::Split, Fault::Crashes];
const LATE_CRASHES: Faults = &[Fault::LateWriteBacks, Fault::Crashes];

#[test]
fn ring_entries_are_whole_in_order_and_accounted_for() {
    expect_clean_in(rings::run, &Mutation::default(), NONE, 10);
}

#[test]
fn ring_entries_survive_producers_that_die() {
    expect_clean_in(rings::run, &Mutation::default(), CRASHES, 10);
}

#[test]
fn ring_entries_survive_late_write_backs() {
    expect_clean_in(rings::run, &Mutation::default(), LATE_CRASHES, 10);
}
