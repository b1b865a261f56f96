//! A commit that stands still: one process reserves and writes, another one begins to publish and stops at every single
//! step, meanwhile the reserver gives up and stores something else in the same place, then the commit goes on.

use crate::actor::{Adversary, Mutation};
use crate::mutants::CRCS;
use crate::scenario::{CHUNKS, content, digest, shape};
use crate::stage::{Stage, Wrong, find, put, read_at, write, wrong_unless};
use hymcache_region::core::{Core, Own, Place, Scratch};
use hymcache_region::memory::{Check, Memory as _};
use hymcache_region::words::ChunkWord;

/// Two chunks that are in nobody's way: one is left, which both others want.
const BYSTANDER: usize = 1;
const GIVEN_UP: usize = 2;
const STORED_NEXT: usize = 0;
/// Both are stored with the size of this one, in versions of their own.
const ALIKE: usize = 0;
const VERSIONS: [(usize, u64); 2] = [(GIVEN_UP, 1), (STORED_NEXT, 2)];

/// When the commit goes on.
const RESUMES: [&str; 3] = [
    "after the next reserve",
    "after the next write",
    "after the next commit",
];

fn own(core: &Core<Adversary>) -> &Own {
    core.own.as_ref().expect("attached for writing")
}

fn commit(core: &Core<Adversary>, place: Place) -> bool {
    let done = core.commit(place, &mut Scratch::default()).is_ok();
    if !done {
        core.abort(place);
    }
    done
}

/// What a process reads under either key, where that is not what was stored there.
fn wrong_reads(core: &Core<Adversary>) -> Wrong {
    let read = |(key, version)| {
        let bytes = read_at(core, find(core, key)?).ok()?;
        (bytes != content(ALIKE, version)).then(|| format!("key {key}: {bytes:02x?}"))
    };
    VERSIONS.into_iter().filter_map(read).collect()
}

/// Chunks that neither are free nor an object's, once the committer is gone.
fn lost_chunks(stage: &Stage, core: &Core<Adversary>) -> Wrong {
    core.sweep_process(own(core), 1);
    core.sweep_orphans(own(core));
    let free = |local: &u32| {
        let word = core.mem.load(stage.layout.chunk_word(0, *local));
        ChunkWord(word).is_free()
    };
    let held = |key, chunks| find(core, key).map_or(0, |_| chunks);
    let expected = CHUNKS - held(BYSTANDER, 2) - held(GIVEN_UP, 1) - held(STORED_NEXT, 1);
    let found = (0..CHUNKS).filter(free).count() as u32;
    let what = format!("{found} chunks are free instead of {expected}");
    wrong_unless(found == expected, what)
}

/// The commit stops after `stop` steps and goes on at `resume`. True when it had ended before.
fn stand_still(blind: &[Check], stop: u64, resume: usize) -> (bool, Wrong) {
    let stage = Stage::new(&Mutation::default().and_blind(blind), stop);
    stage.world.borrow_mut().calm = true;
    let (reserver, other) = (stage.join(0, 0, 0), stage.join(1, 1, 0));
    put(&reserver, BYSTANDER, 1);
    let reserve = |key| {
        let reserve = || reserver.reserve(&digest(key), shape(ALIKE), &mut Scratch::default());
        let place = reserve().or_else(|_| {
            reserver.evict_key(&digest(BYSTANDER)); // the oldest is being committed right now
            reserve()
        });
        place.expect("there is room")
    };
    let first = reserve(GIVEN_UP);
    assert!(write(&reserver, first, ALIKE, 1));
    let mut committer = stage.spawn(1, move |core| {
        core.enter(own(core), 1);
        commit(core, first);
    });
    let ended = (0..stop).any(|_| committer.resume());
    let mut go_on = |now: usize| {
        if now == resume && !ended {
            while !committer.resume() {}
        }
    };
    reserver.abort(first);
    let second = reserve(STORED_NEXT);
    go_on(0);
    let written = write(&reserver, second, ALIKE, 2);
    go_on(1);
    let stored = commit(&reserver, second);
    go_on(2);
    let mut wrong = wrong_unless(
        written && stored && find(&reserver, STORED_NEXT).is_some(),
        "the next put is lost",
    );
    wrong.extend([&reserver, &other].into_iter().flat_map(wrong_reads));
    wrong.extend(lost_chunks(&stage, &reserver));
    (ended, wrong)
}

fn expect_nobody_is_touched(blind: &[Check]) {
    for (resume, name) in RESUMES.iter().enumerate() {
        let mut stop = 0;
        loop {
            let (ended, wrong) = stand_still(blind, stop, resume);
            assert!(
                wrong.is_empty(),
                "stopped at step {stop}, went on {name}: {wrong:?}"
            );
            if ended {
                break;
            }
            stop += 1;
        }
        assert!(stop > 30, "the commit ended after {stop} steps");
    }
}

#[test]
fn a_commit_that_stands_still_and_goes_on_touches_nobody_elses_object() {
    expect_nobody_is_touched(&[]);
}

#[test]
fn a_commit_that_stands_still_needs_no_checksum() {
    expect_nobody_is_touched(&CRCS);
}
