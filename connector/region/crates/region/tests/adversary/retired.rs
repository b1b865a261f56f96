//! An eviction that stands still: one process stops at every single step of it, others of its host use the header for
//! the next object, then it goes on. What it tells and marks is about the object that it evicted.

use crate::actor::{Adversary, Mutation};
use crate::scenario::{content, digest, piece, shape};
use crate::stage::{Stage, Wrong, find, put, wrong_unless};
use hymcache_region::buffers::Buffers;
use hymcache_region::core::{Core, Scratch};
use hymcache_region::memory::Memory as _;
use hymcache_region::news::News;
use hymcache_region::ring::Cursor;
use hymcache_region::words::Recency;

const EVICTED: usize = 0;
const BYSTANDER: usize = 1;
/// Stored meanwhile, with the size of [`EVICTED`]: the first takes its chunk, the second its header.
const NEXT: [usize; 2] = [5, 6];

fn put_next(core: &Core<Adversary>, key: usize) -> bool {
    let mut bytes = content(EVICTED, key as u64);
    let list = piece(&mut bytes);
    let mut scratch = Scratch::default();
    let shape = shape(EVICTED);
    core.put(&digest(key), shape, Buffers::List(&list), &mut scratch)
        .is_ok()
}

fn is_of_the_evicted(news: &News) -> bool {
    let bytes = content(EVICTED, 1).len() as u64;
    (news.key, news.place.generation, news.bytes) == (digest(EVICTED), 1, bytes)
}

/// The eviction stops after `stop` steps. True when it had ended before.
fn stand_still(stop: u64) -> (bool, Wrong) {
    let stage = Stage::new(&Mutation::default(), stop);
    stage.world.borrow_mut().calm = true;
    let (owner, other) = (stage.join(0, 0, 0), stage.join(1, 1, 0));
    assert!(put(&owner, BYSTANDER, 1) && put(&owner, EVICTED, 1)); // a later put is older, and goes first
    let reused = find(&owner, EVICTED).expect("just stored").header;
    let mut evictor = stage.spawn(1, |core| {
        core.enter(core.own.as_ref().expect("attached for writing"), 1);
        core.evict_key(&digest(EVICTED));
    });
    let ended = (0..stop).any(|_| evictor.resume());
    let stored = NEXT.map(|key| put_next(&owner, key) && find(&owner, key).is_some());
    let mut wrong = wrong_unless(stored == [true; 2], "one of the next puts is lost");
    let last = find(&owner, NEXT[1]).map(|place| place.header);
    assert_eq!(last, Some(reused), "this tests nothing");
    let mut cursor = Cursor::default();
    other.news(0, &mut cursor, usize::MAX, |_, _| ());
    while !ended && !evictor.resume() {}
    other.news(0, &mut cursor, usize::MAX, |_, news| {
        wrong.extend(wrong_unless(is_of_the_evicted(news), format!("{news:?}")));
    });
    let recency = Recency(owner.mem.load(stage.layout.recency(0, reused)));
    let is_listed = recency.list().is_some();
    wrong.extend(wrong_unless(
        is_listed,
        format!("the next object is on no list: {recency:x?}"),
    ));
    (ended, wrong)
}

#[test]
fn an_eviction_that_stands_still_and_goes_on_speaks_of_nobody_elses_object() {
    let mut stop = 0;
    loop {
        let (ended, wrong) = stand_still(stop);
        assert!(wrong.is_empty(), "stopped at step {stop}: {wrong:?}");
        if ended {
            break;
        }
        stop += 1;
    }
    assert!(stop > 20, "the eviction ended after {stop} steps");
}
