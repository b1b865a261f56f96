//! Domains that change hands and regions that are formatted anew, while others look.

use crate::actor::{Actor, Mutation};
use crate::fresh::{MEDIUM, superblock};
use crate::scenario::{content, digest, shape};
use crate::stage::{Stage, Wrong, find, put, read_at, write, wrong_bytes, wrong_unless};
use crate::world::Random;
use hymcache_region::attach::{empty_domain, load_superblock};
use hymcache_region::core::Scratch;
use hymcache_region::domain::load_extents;
use hymcache_region::error::ErrorKind;
use hymcache_region::format::write_metadata;
use hymcache_region::memory::Memory;
use hymcache_region::superblock::Superblock;
use hymcache_region::words::HeaderWord;
use std::cell::RefCell;
use std::rc::Rc;

/// Steps after which an observer's looks end.
const LOOKS: usize = 60;
/// How often an attach looks again at a superblock that seems torn.
const TORN_LOOKS: usize = 4;

/// A new owner whose host has the domain's lines from long ago: no generation falls, and a reference to one of the
/// former owner's objects gives its bytes or none once the new owner writes where it lay.
pub(crate) fn taken_over(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let (former, other) = (stage.join(0, 0, 0), stage.join(2, 1, 0));
    let heir = stage.memory(1);
    stage.cache_directory(&heir);
    put(&former, 0, 1);
    let place = find(&former, 0).expect("just stored");
    let generations = || -> Vec<u64> {
        let word = |h| stage.world.borrow().in_memory(stage.layout.header(0, h));
        (0..stage.layout.headers())
            .map(|h| HeaderWord(word(h)).generation())
            .collect()
    };
    let before = generations();
    stage.fence(&heir);
    empty_domain(&heir, &stage.layout, 0, 0);
    let next = stage.join(1, 0, 1);
    let mut scratch = Scratch::default();
    if let Ok(reserved) = next.reserve(&digest(2), shape(2), &mut scratch) {
        write(&next, reserved, 2, 2);
    }
    let mut wrong = wrong_bytes(0, &read_at(&other, place));
    let is_kept = before.iter().zip(generations()).all(|(&b, now)| now >= b);
    wrong.extend(wrong_unless(
        is_kept,
        "a generation fell: an old reference names a new object",
    ));
    wrong
}

/// A process of the former epoch goes on storing after a format: nobody of the new epoch reads it.
pub(crate) fn zombie(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::unformatted(mutation, seed);
    let formatter = stage.memory(0);
    let (mut identity, layout) = superblock(1);
    write_metadata(&formatter, &identity, &layout);
    let old = stage.join_epoch(0, 0, 0, 1);
    put(&old, 0, 1);
    identity.identity.epoch = 2;
    write_metadata(&formatter, &identity, &layout);
    let reader = stage.join_epoch(1, 1, 0, 2);
    let mut wrong = Wrong::new();
    for version in 2..6 {
        put(&old, 1, version);
        put(&old, 2, version);
        for key in [0, 1, 2] {
            let read = find(&reader, key).map(|place| read_at(&reader, place));
            wrong.extend(wrong_unless(
                !matches!(read, Some(Ok(_))),
                format!("key {key} of the former epoch was read: {read:02x?}"),
            ));
        }
    }
    wrong
}

/// Whoever attaches during a format finds the old epoch whole, a format under way, or the new epoch whole.
pub(crate) fn formatted_under_eyes(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::unformatted(mutation, seed);
    let (old, old_layout) = superblock(1);
    write_metadata(&stage.memory(0), &old, &old_layout);
    let wrong = Rc::new(RefCell::new(Wrong::new()));
    let formatter = Actor::spawn(&stage.world, 0, mutation, |mem| {
        let (new, layout) = superblock(2);
        write_metadata(&mem, &new, &layout);
    });
    let found = Rc::clone(&wrong);
    let looker = Actor::spawn(&stage.world, 1, mutation, move |mem| {
        for _ in 0..LOOKS {
            let more = look(&mem); // gives control away in between
            found.borrow_mut().extend(more);
        }
    });
    let mut random = Random::new(seed ^ 0x5EED);
    let mut actors = vec![formatter, looker];
    while !actors.is_empty() && wrong.borrow().is_empty() {
        let index = random.below(actors.len());
        let most = [4, 60, 600][random.below(3)];
        let burst = 1 + random.below(most);
        for _ in 0..burst {
            if actors[index].resume() {
                actors.swap_remove(index);
                break;
            }
        }
    }
    actors.into_iter().for_each(Actor::crash);
    wrong.take()
}

/// One attach's look at the superblock, and at what it promises.
fn look<M: Memory>(mem: &M) -> Wrong {
    let decode = || Superblock::decode("", &load_superblock(mem), MEDIUM);
    let is_torn = |error: &hymcache_region::error::RegionError| error.kind == ErrorKind::Torn;
    let mut found = decode();
    for _ in 1..TORN_LOOKS {
        if !found.as_ref().is_err_and(is_torn) {
            break;
        }
        found = decode();
    }
    match found {
        Err(error) if error.kind == ErrorKind::Formatting => Wrong::new(),
        Err(error) => vec![format!("{:?}: {}", error.kind, error.message)],
        Ok((superblock, layout)) => {
            let is_whole = load_extents(mem, &layout, 0).is_ok();
            let epoch = |again: &Superblock| again.identity.epoch == superblock.identity.epoch;
            let stands = decode().is_ok_and(|(again, _)| epoch(&again));
            wrong_unless(
                is_whole || !stands,
                format!(
                    "epoch {} is ready and its record is not",
                    superblock.identity.epoch
                ),
            )
        }
    }
}

/// A reference kept while its header is used again and again never reads another object.
pub(crate) fn outlived(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let core = stage.join(0, 0, 0);
    put(&core, 0, 1);
    let place = find(&core, 0).expect("just stored");
    let mut wrong = Wrong::new();
    for version in 2..12 {
        for key in [2, 1] {
            core.evict_key(&digest(3 - key));
            core.evict_key(&digest(0));
            put(&core, key, version);
            let read = read_at(&core, place);
            wrong.extend(wrong_unless(
                !matches!(&read, Ok(bytes) if *bytes != content(0, 1)),
                format!("a reference to key 0 gives {read:02x?}"),
            ));
        }
    }
    wrong
}
