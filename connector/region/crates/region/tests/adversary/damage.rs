//! Damaged metadata: what each check stops by itself.

use crate::actor::Mutation;
use crate::scenario::{content, digest, piece, shape};
use crate::stage::{Stage, Wrong, find, put, read_at, write, wrong_bytes, wrong_unless};
use hymcache_region::buffers::Buffers;
use hymcache_region::core::{Core, Place, Scratch};
use hymcache_region::header::Header;
use hymcache_region::memory::Memory;
use hymcache_region::read::Units;
use hymcache_region::write::Shape;
use std::cell::Cell;
use std::rc::Rc;

/// Steps no operation takes.
const ENDLESS: u64 = 20_000;

const LOW: u64 = 0xFFFF_FFFF;

/// First table slot of an object.
fn slot<M: Memory>(core: &Core<M>, place: Place) -> u32 {
    let line = std::array::from_fn(|i| {
        let at = core.layout.header(place.domain, place.header);
        core.mem.load(at + 8 * i as u64)
    });
    Header::decode(&line).table
}

/// Stores key 1, an object of two chunks, and damages one word of its header or of its first table slot.
fn read_damaged(
    mutation: &Mutation,
    seed: u64,
    in_table: bool,
    word: u64,
    change: impl Fn(u64) -> u64,
) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let (owner, other) = (stage.join(0, 0, 0), stage.join(1, 1, 0));
    put(&owner, 0, 1);
    put(&owner, 1, 2);
    let place = find(&owner, 1).expect("just stored");
    let at = if in_table {
        stage.layout.table(0, slot(&owner, place))
    } else {
        stage.layout.header(0, place.header)
    };
    stage.damage(at + 8 * word, change);
    let mut wrong = wrong_bytes(1, &read_at(&other, place));
    wrong.extend(stage.strays());
    wrong
}

/// The header says one unit where there are two.
pub(crate) fn units(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let owner = stage.join(0, 0, 0);
    let two = Shape {
        units: 2,
        unit_bytes: 60,
        ..shape(0)
    };
    let (mut bytes, mut scratch) = (content(0, 1), Scratch::default());
    let list = piece(&mut bytes);
    let _ = owner.put(&digest(0), two, Buffers::List(&list), &mut scratch);
    let place = find(&owner, 0).expect("just stored");
    let at = stage.layout.header(0, place.header) + 32;
    stage.damage(at, |word| word & !0xFFFF | 1);
    wrong_bytes(0, &read_at(&owner, place))
}

/// The header names a table slot far outside.
pub(crate) fn first_slot(mutation: &Mutation, seed: u64) -> Wrong {
    read_damaged(mutation, seed, false, 5, |word| word & !LOW | 0x7FFF_FFF0)
}

/// A table slot names a chunk far outside.
pub(crate) fn chunk(mutation: &Mutation, seed: u64) -> Wrong {
    read_damaged(mutation, seed, true, 0, |word| word & !LOW | 0x00FF_FFFF)
}

/// A table slot names another object's chunk.
pub(crate) fn other_chunk(mutation: &Mutation, seed: u64) -> Wrong {
    read_damaged(mutation, seed, true, 0, |word| word ^ 3)
}

/// A byte of the payload.
pub(crate) fn payload(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let owner = stage.join(0, 0, 0);
    put(&owner, 0, 1);
    let place = find(&owner, 0).expect("just stored");
    let at = stage.layout.chunk(slot(&owner, place));
    stage.damage(at + 8, |word| word ^ 1 << 20);
    wrong_bytes(0, &read_at(&owner, place))
}

/// The header asks for more slots than a domain has, and the table's chain is a ring.
pub(crate) fn endless(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let owner = stage.join(0, 0, 0);
    put(&owner, 1, 1);
    let place = find(&owner, 1).expect("just stored");
    let (header, first) = (stage.layout.header(0, place.header), slot(&owner, place));
    stage.damage(header + 24, |word| word | LOW << 32);
    stage.damage(header + 32, |word| word | 0xFFFF);
    let ring = u64::from(first) << 32;
    stage.damage(stage.layout.table(0, first), |word| word & LOW | ring);
    let mut reader = stage.spawn(1, move |core| _ = read_at(core, place));
    let ends = (0..ENDLESS).any(|_| reader.resume());
    reader.crash();
    wrong_unless(ends, "a read that never ends")
}

/// A header shows another key for a while: the lookup's hint is not the read's proof.
pub(crate) fn flickering_key(mutation: &Mutation, seed: u64) -> Wrong {
    (0..60)
        .map(|steps| flicker(mutation, seed, steps))
        .find(|wrong| !wrong.is_empty())
        .unwrap_or_default()
}

fn flicker(mutation: &Mutation, seed: u64, steps: usize) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let owner = stage.join(0, 0, 0);
    put(&owner, 0, 1);
    let place = find(&owner, 0).expect("just stored");
    let header = stage.layout.header(0, place.header);
    let (own, shown) = (digest(0), digest(2));
    // Where the two keys differ: their first word and their last 32 bits.
    let swap = || {
        stage.damage(header + 8, |word| word ^ own.a ^ shown.a);
        stage.damage(header + 24, |word| word ^ u64::from(own.c ^ shown.c));
    };
    let hit = Rc::new(Cell::new(false));
    let outcome = Rc::clone(&hit);
    let mut reader = stage.spawn(1, move |core| {
        let mut bytes = content(2, 0);
        let list = piece(&mut bytes);
        let (buffers, mut scratch) = (Buffers::List(&list), Scratch::default());
        let read = core.get(&digest(2), Units::ALL, buffers, &mut scratch);
        outcome.set(read.is_ok());
    });
    swap();
    let mut ended = (0..steps).any(|_| reader.resume());
    swap();
    while !ended {
        ended = reader.resume();
    }
    wrong_unless(!hit.get(), "a key that was never stored was read")
}

/// A lookup for a key whose tag and set another key has.
pub(crate) fn same_tag(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let owner = stage.join(0, 0, 0);
    put(&owner, 0, 1);
    wrong_unless(
        find(&owner, 2).is_none(),
        "a key that was never stored is found",
    )
}

/// A reservation of two chunks whose chain is damaged before the write: `next` replaces the second slot's number.
fn write_damaged(mutation: &Mutation, seed: u64, first: Option<u32>, next: Option<u32>) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let owner = stage.join(0, 0, 0);
    put(&owner, 0, 1);
    let neighbour = find(&owner, 0).expect("just stored");
    let mut scratch = Scratch::default();
    let Ok(place) = owner.reserve(&digest(1), shape(1), &mut scratch) else {
        return Wrong::new(); // a lookup without its check says that the key is there
    };
    let head = slot(&owner, place);
    if let Some(first) = first {
        let at = stage.layout.header(0, place.header) + 40;
        stage.damage(at, |word| word & !LOW | u64::from(first));
    }
    let next = next.unwrap_or_else(|| slot(&owner, neighbour));
    stage.damage(stage.layout.table(0, head), |word| {
        word & LOW | u64::from(next) << 32
    });
    write(&owner, place, 1, 2);
    let mut wrong = wrong_bytes(0, &read_at(&owner, neighbour));
    owner.abort(place);
    wrong.extend(stage.strays());
    wrong
}

/// The chain leads into another object's chunk.
pub(crate) fn chain_into_another(mutation: &Mutation, seed: u64) -> Wrong {
    write_damaged(mutation, seed, None, None)
}

/// The chain leads out of the domain.
pub(crate) fn chain_outside(mutation: &Mutation, seed: u64) -> Wrong {
    write_damaged(mutation, seed, Some(0x7FFF_FFF0), Some(0x7FFF_FFF0))
}
