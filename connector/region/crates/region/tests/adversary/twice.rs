//! One section written twice: a writer stands still at every single step, another one writes the same section and the
//! object is published, evicted and its chunk stored to anew, then the first writer goes on.

use crate::actor::{Adversary, Mutation};
use crate::mutants::CRCS;
use crate::scenario::{content, digest, shape};
use crate::stage::{Stage, Wrong, find, put, read_at, write, wrong_unless};
use hymcache_region::core::{Core, Scratch};
use hymcache_region::memory::Check;

/// Two chunks that are in nobody's way: one is left, which both others want.
const BYSTANDER: usize = 1;
const WRITTEN_TWICE: usize = 2;
const STORED_NEXT: usize = 0;

/// What is wrong with the object that was stored next.
fn wrong_read(core: &Core<Adversary>) -> Wrong {
    let read = find(core, STORED_NEXT).map(|place| read_at(core, place));
    let is_right = matches!(&read, Some(Ok(bytes)) if *bytes == content(STORED_NEXT, 2));
    wrong_unless(is_right, format!("{read:02x?}"))
}

/// The first writer stops after `stop` steps. True when it had ended before.
fn stand_still(blind: &[Check], stop: u64) -> (bool, Wrong) {
    let stage = Stage::new(&Mutation::default().and_blind(blind), stop);
    stage.world.borrow_mut().calm = true;
    let (reserver, other) = (stage.join(0, 0, 0), stage.join(1, 1, 0));
    put(&reserver, BYSTANDER, 1);
    let shape = shape(STORED_NEXT); // of both, in versions of their own
    let place = reserver.reserve(&digest(WRITTEN_TWICE), shape, &mut Scratch::default());
    let place = place.expect("there is room");
    let mut writer = stage.spawn(1, move |core| {
        core.enter(core.own.as_ref().expect("attached for writing"), 1);
        write(core, place, STORED_NEXT, 1);
    });
    let ended = (0..stop).any(|_| writer.resume());
    let written = write(&reserver, place, STORED_NEXT, 1);
    let published = reserver.commit(place, &mut Scratch::default()).is_ok();
    if !published {
        reserver.abort(place);
    }
    reserver.evict_key(&digest(WRITTEN_TWICE));
    let stored = put(&reserver, STORED_NEXT, 2);
    while !ended && !writer.resume() {}
    let mut wrong = wrong_unless(written && stored, "the next put is lost");
    wrong.extend(wrong_unless(
        published || !ended,
        "nobody writes, and it is not published",
    ));
    wrong.extend([&reserver, &other].into_iter().flat_map(wrong_read));
    (ended, wrong)
}

#[test]
fn a_second_writer_of_a_section_that_stands_still_and_goes_on_touches_nobody_elses_object() {
    for blind in [&[][..], &CRCS] {
        let mut stop = 0;
        loop {
            let (ended, wrong) = stand_still(blind, stop);
            assert!(wrong.is_empty(), "stopped at step {stop}: {wrong:?}");
            if ended {
                break;
            }
            stop += 1;
        }
        assert!(stop > 20, "the write ended after {stop} steps");
    }
}
