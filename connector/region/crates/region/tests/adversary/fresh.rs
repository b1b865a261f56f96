//! Freshness: what a host has published is seen by the next look of another, which had the old lines in its cache.

use crate::actor::Mutation;
use crate::scenario::{CHUNKS, digest, shape};
use crate::stage::{Stage, Wrong, find, put, read_at, write, wrong_unless};
use hymcache_region::attach::load_superblock;
use hymcache_region::core::{Identity, Scratch};
use hymcache_region::domain::{OwnerLine, load_extents, load_owner, store_owner};
use hymcache_region::format::write_metadata;
use hymcache_region::layout::{Counter, DOMAIN_OWNER_AT, Geometry, Layout};
use hymcache_region::memory::Memory as _;
use hymcache_region::superblock::{BYTES, Progress, Superblock};

/// A stored object is found by a host that looked, in vain, before.
pub(crate) fn stored(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let (owner, other) = (stage.join(0, 0, 0), stage.join(1, 1, 0));
    stage.cache_directory(&other.mem);
    let is_stored = put(&owner, 0, 1);
    stage.fence(&other.mem);
    let is_found = find(&other, 0).is_some();
    wrong_unless(is_stored && is_found, "a stored object is not found")
}

/// An object is read by its reference by a host that has the header as it was before.
pub(crate) fn referred(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let (owner, other) = (stage.join(0, 0, 0), stage.join(1, 1, 0));
    stage.cache_directory(&other.mem);
    let mut scratch = Scratch::default();
    let place = owner.reserve(&digest(0), shape(0), &mut scratch);
    let place = place.expect("room for an object");
    let is_stored = write(&owner, place, 0, 1) && owner.commit(place, &mut scratch).is_ok();
    stage.fence(&other.mem);
    let read = read_at(&other, place);
    wrong_unless(
        is_stored && read.is_ok(),
        format!("a published object is not read: {read:?}"),
    )
}

/// A retired object is not found by a host that found it before.
pub(crate) fn retired(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let (owner, other) = (stage.join(0, 0, 0), stage.join(1, 1, 0));
    put(&owner, 0, 1);
    stage.cache_directory(&other.mem);
    owner.evict_key(&digest(0));
    stage.fence(&other.mem);
    wrong_unless(find(&other, 0).is_none(), "a retired object is found")
}

/// A domain's owner is seen by a host that looked before there was one.
pub(crate) fn owned(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::new(mutation, seed);
    let (owner, other) = (stage.memory(0), stage.memory(1));
    let before = load_owner(&other, &stage.layout, 0);
    stage.fence(&other);
    other.load(stage.layout.domain(0) + DOMAIN_OWNER_AT); // in its cache again, by chance
    let line = OwnerLine {
        turn: 1,
        host: [7; 16],
        boot: [8; 16],
        since_ms: 1,
    };
    store_owner(&owner, &stage.layout, 0, &line);
    stage.fence(&other);
    let after = load_owner(&other, &stage.layout, 0);
    wrong_unless(
        before.is_none() && after == Some(line),
        format!("owner {after:?}: a second host would take the domain"),
    )
}

/// A superblock of `epoch`; odd and even ones differ in every size.
pub(crate) fn superblock(epoch: u64) -> (Superblock, Layout) {
    let odd = epoch % 2 == 1;
    let geometry = Geometry {
        bytes: 1 << 20,
        granule: 4096,
        chunk_bytes: if odd { 128 } else { 256 },
        domain_chunks: if odd { CHUNKS } else { CHUNKS - 1 },
        domains: if odd { 2 } else { 1 },
        sets: 1,
        table_lines: 1,
        processes: if odd { 4 } else { 2 },
        namespaces: 1,
        quarantine_lines: 1,
        rings: [1; 4],
    };
    let layout = Layout::new(geometry.clone()).expect("a valid geometry");
    let identity = Identity {
        uuid: [9; 16],
        epoch,
        software: true,
        formatted_seconds: epoch << 40,
    };
    let superblock = Superblock {
        identity,
        geometry,
        progress: Progress::Ready,
        read_only_features: 0,
    };
    (superblock, layout)
}

/// Bytes of the medium as the superblock's decoder is told.
pub(crate) const MEDIUM: u64 = 1 << 20;

/// A new epoch is seen, whole, by a host that has the old one in its cache.
pub(crate) fn reformatted(mutation: &Mutation, seed: u64) -> Wrong {
    let stage = Stage::unformatted(mutation, seed);
    let (formatter, other) = (stage.memory(0), stage.memory(1));
    let (old, old_layout) = superblock(1);
    write_metadata(&formatter, &old, &old_layout);
    stage.fence(&other);
    let before = Superblock::decode("", &load_superblock(&other), MEDIUM);
    stage.fence(&other);
    for at in (0..BYTES as u64).step_by(8) {
        other.load(at); // in its cache again, by chance
    }
    let (new, layout) = superblock(2);
    write_metadata(&formatter, &new, &layout);
    stage.fence(&other);
    let after = Superblock::decode("", &load_superblock(&other), MEDIUM);
    let is_whole = load_extents(&other, &layout, 0).is_ok();
    let counter = layout.counter(0, Counter::FreeChunks);
    let free = stage.world.borrow().in_memory(counter);
    let epoch = |found: &Result<(Superblock, Layout), _>| {
        found.as_ref().map_or(0, |(found, _)| found.identity.epoch)
    };
    wrong_unless(
        (epoch(&before), epoch(&after)) == (1, 2)
            && is_whole
            && free == layout.geometry.domain_chunks.into(),
        format!("epochs {before:?} {after:?}, record whole: {is_whole}, free chunks: {free}"),
    )
}
