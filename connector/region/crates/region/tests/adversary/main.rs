//! The shipping protocol on a model that loses, delays, reorders and crashes. See `world` for what may happen.
//!
//! Runs are named by their seed. `HYMCACHE_ADVERSARY_STEPS` sets how many steps the clean runs take.

mod actor;
mod scenario;
mod world;

use actor::Mutation;
use hymcache_region::memory::{Check, Step};
use scenario::{Fault, Faults, Outcome, run};

const CRCS: [Check; 3] = [Check::HeaderCrc, Check::TableCrc, Check::UnitCrc];

fn steps_wanted() -> u64 {
    std::env::var("HYMCACHE_ADVERSARY_STEPS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1_000_000)
}

fn without(checks: &[Check], steps: &[Step]) -> Mutation {
    Mutation {
        skip: steps.iter().copied().collect(),
        blind: checks.iter().copied().collect(),
    }
}

/// Runs seeds until the steps are done; fails with the seed of the first wrong run.
fn expect_clean(mutation: &Mutation, faults: Faults, share: u64) {
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

/// Runs seeds until one goes wrong; fails when none does.
fn expect_caught(name: &str, mutation: &Mutation, faults: Faults) {
    for seed in 1..30_000 {
        if !run(seed, mutation, faults).wrong.is_empty() {
            return;
        }
    }
    panic!("{name}: left out, and nothing went wrong: the step is needless or the model too kind");
}

#[test]
fn ordering_alone_is_enough() {
    expect_clean(&without(&CRCS, &[]), NONE, 2);
}

#[test]
fn ordering_alone_survives_crashes_at_any_step() {
    expect_clean(&without(&CRCS, &[]), CRASHES, 2);
}

#[test]
fn ordering_alone_survives_crashes_of_puts_in_three_processes() {
    expect_clean(&without(&CRCS, &[]), SPLIT_CRASHES, 2);
}

#[test]
fn checksums_stop_late_write_backs() {
    expect_clean(&Mutation::default(), LATE_CRASHES, 2);
}

macro_rules! ordering_mutants {
    ($($name:ident: $($step:ident),+ $(in $faults:expr)?;)+) => { $(
        #[test]
        fn $name() {
            let faults = [NONE, $($faults)?].last().copied().unwrap_or(NONE);
            expect_caught(stringify!($name), &without(&CRCS, &[$(Step::$step),+]), faults);
        }
    )+ };
}

const NONE: Faults = &[];
const SPLIT: Faults = &[Fault::Split];
const GUESSES: Faults = &[Fault::Guesses];
const CRASHES: Faults = &[Fault::Crashes];
const LATE: Faults = &[Fault::LateWriteBacks];
const SPLIT_CRASHES: Faults = &[Fault::Split, Fault::Crashes];
const LATE_CRASHES: Faults = &[Fault::LateWriteBacks, Fault::Crashes];

ordering_mutants! {
    a_writer_that_does_not_fence_its_payload_is_caught: PayloadFence in SPLIT;
    a_table_left_in_the_cache_is_caught: TableFlush;
    a_commit_without_fence_is_caught: CommitFence, PayloadFence;
    a_header_that_leaves_without_flush_is_caught: FreeFlush;
    a_header_that_leaves_without_fence_is_caught: FreeFence, RetireFence;
    an_heir_that_does_not_flush_again_is_caught: HeirFlush in CRASHES;
    a_table_read_from_the_cache_is_caught: TableInvalidate;
    a_table_read_before_its_lines_are_dropped_is_caught: TableFence;
    a_table_dropped_before_the_header_was_read_is_caught: TableFenceBefore in GUESSES;
    a_payload_read_from_the_cache_is_caught: PayloadInvalidate;
    a_payload_read_before_its_lines_are_dropped_is_caught: CopyFence;
    a_second_look_before_the_copy_is_caught: RecheckFenceBefore;
    a_second_look_into_the_cache_is_caught: RecheckInvalidate;
    a_second_look_before_its_line_is_dropped_is_caught: RecheckFence;
}

#[test]
fn a_missing_second_look_is_caught() {
    let blind = [&CRCS[..], &[Check::Recheck]].concat();
    expect_caught("Recheck", &without(&blind, &[]), NONE);
}

#[test]
fn a_key_that_is_not_compared_is_caught() {
    expect_caught("Key", &without(&[Check::Key], &[]), NONE);
}

#[test]
fn a_sweep_that_frees_live_chunks_is_caught() {
    let blind = [&CRCS[..], &[Check::Orphan]].concat();
    expect_caught("Orphan", &without(&blind, &[]), CRASHES);
}

#[test]
fn a_sweep_that_ignores_writers_is_caught() {
    let blind = [&CRCS[..], &[Check::Unwritten]].concat();
    expect_caught("Unwritten", &without(&blind, &[]), SPLIT);
}

#[test]
fn a_commit_before_the_write_is_done_is_caught() {
    let blind = [&CRCS[..], &[Check::Complete]].concat();
    expect_caught("Complete", &without(&blind, &[]), SPLIT);
}

#[test]
fn a_missing_unit_checksum_is_caught_by_late_write_backs() {
    expect_caught("UnitCrc", &without(&[Check::UnitCrc], &[]), LATE);
}

#[test]
fn a_missing_table_checksum_is_caught_by_late_write_backs() {
    expect_caught(
        "TableCrc",
        &without(&[Check::TableCrc, Check::UnitCrc], &[]),
        LATE,
    );
}
