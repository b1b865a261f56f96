//! Dead before the flush: a process dies at every single step of put, evict and reclaim, another one of its host dies at
//! steps of the sweep, a third one takes the chunks. Checksums are off, and no line leaves a cache by chance.

use crate::actor::{Actor, Adversary, Mutation};
use crate::mutants::CRCS;
use crate::scenario::{digest, shape};
use crate::stage::{Stage, Wrong, find, put, read_at, write, wrong_bytes};
use crate::world::Random;
use hymcache_region::core::{Core, Own, Place, Scratch};
use hymcache_region::memory::Step;

/// Steps of the sweep at which the second process dies, per step of the first one; the first two: at once, never.
const SWEEPS: u64 = 6;
/// More steps than any of the processes takes.
const MANY: u64 = 100_000;

fn own(core: &Core<Adversary>) -> &Own {
    core.own.as_ref().expect("attached for writing")
}

/// What the first process does: everything that moves chunks.
fn script(core: &Core<Adversary>) {
    core.enter(own(core), 1);
    core.evict_key(&digest(0));
    put(core, 1, 2);
    put(core, 2, 3);
    core.evict_key(&digest(1));
    put(core, 0, 4);
    let mut scratch = Scratch::default();
    if let Ok(place) = core.reserve(&digest(1), shape(1), &mut scratch) {
        write(core, place, 1, 5);
        core.abort(place);
    }
}

/// Runs `actor` for some steps, then it is no more. True when it came to its end: it lives on, and does nothing.
fn run_and_kill(mut actor: Actor, steps: u64) -> bool {
    let ended = (0..steps).any(|_| actor.resume());
    if !ended {
        actor.crash();
    }
    ended
}

/// What another host reads: the object it found at the start, and what it finds now.
fn reads(other: &Core<Adversary>, place: Place) -> Wrong {
    let mut wrong = wrong_bytes(0, &read_at(other, place));
    for key in 0..3 {
        if let Some(place) = find(other, key) {
            wrong.extend(wrong_bytes(key, &read_at(other, place)));
        }
    }
    wrong
}

/// The first process dies after `first` steps. True when it had ended before.
fn die(mutation: &Mutation, first: u64, choice: u64) -> (bool, Wrong) {
    let stage = Stage::new(mutation, first * SWEEPS + choice);
    stage.world.borrow_mut().calm = true;
    let (owner, other) = (stage.join(0, 0, 0), stage.join(1, 1, 0));
    put(&owner, 0, 1);
    let place = find(&owner, 0).expect("just stored");
    let ended = run_and_kill(stage.spawn(1, script), first);
    let mut wrong = reads(&other, place);
    let second = match choice {
        0 => 0,
        1 => MANY,
        n => Random::new(first << 8 | n).next() % 700,
    };
    let sweep = |core: &Core<Adversary>| {
        core.enter(own(core), 2);
        core.sweep_process(own(core), 1);
    };
    run_and_kill(stage.spawn(2, sweep), second);
    wrong.extend(reads(&other, place));
    let successor = stage.join(0, 0, 3);
    successor.sweep_process(own(&successor), 1);
    successor.sweep_process(own(&successor), 2);
    let mut scratch = Scratch::default();
    for key in [2, 1, 0] {
        if let Ok(reserved) = successor.reserve(&digest(key), shape(key), &mut scratch) {
            write(&successor, reserved, key, 9);
            wrong.extend(reads(&other, place)); // before the commit that would show the reader a new header
            if successor.commit(reserved, &mut scratch).is_err() {
                successor.abort(reserved);
            }
            wrong.extend(reads(&other, place));
        }
    }
    (ended, wrong)
}

/// The first wrong one of all deaths, with the steps.
fn first_wrong(mutation: &Mutation) -> Option<(u64, u64, Wrong)> {
    let mutation = mutation.and_blind(&CRCS);
    for first in 0..MANY {
        let mut ended = true;
        for choice in 0..SWEEPS {
            let (end, wrong) = die(&mutation, first, choice);
            if !wrong.is_empty() {
                return Some((first, choice, wrong));
            }
            ended &= end;
        }
        if ended {
            assert!(first > 300, "the script ended after {first} steps");
            return None;
        }
    }
    panic!("the script does not end");
}

/// As one trial: the seed says at which step the first process dies.
pub(crate) fn dead_before_the_flush(mutation: &Mutation, seed: u64) -> Wrong {
    (0..SWEEPS)
        .map(|choice| die(mutation, seed, choice).1)
        .find(|wrong| !wrong.is_empty())
        .unwrap_or_default()
}

#[test]
fn a_death_at_every_step_of_put_evict_and_reclaim_shows_nobody_wrong_bytes() {
    assert_eq!(first_wrong(&Mutation::default()), None);
}

#[test]
fn a_successor_that_does_not_flush_again_is_caught_at_some_death() {
    let mut mutation = Mutation::default();
    mutation.skip.insert(Step::HeirFlush);
    assert!(first_wrong(&mutation).is_some());
}
