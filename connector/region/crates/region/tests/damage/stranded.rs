//! Words that say who stores where, damaged: what is held for nobody returns once nobody can be storing there.

use crate::bed::{KEYS, Raw, User, piece};
use hymcache_region::buffers::Buffers;
use hymcache_region::core::{Core, Own, Scratch};
use hymcache_region::inspect::{ChunkUse, Seen};
use hymcache_region::layout::Layout;
use hymcache_region::mapped::Mapped;
use hymcache_region::memory::Memory;
use hymcache_region::words::{HeaderWord, Life, ProcessWord, State};
use hymcache_region::write::Shape;

/// Four chunks.
const LARGE: Shape = Shape {
    units: 4,
    unit_bytes: 60_000,
    sections: 1,
    namespace: 0,
};
/// A slot that nobody takes here, and one that no domain has.
const NOBODYS: [u32; 2] = [7, 4095];

fn join(raw: &Raw) -> User {
    User::new(raw.attach(0, false).expect("attach"))
}

fn chunk_use(user: &User) -> ChunkUse {
    user.live.core().chunk_use(0)
}

/// Neither free nor an object's.
fn stranded(user: &User, layout: &Layout) -> u64 {
    let found = chunk_use(user);
    u64::from(layout.geometry.domain_chunks) - found.free - found.valid - found.retired
}

/// The words that a header may be damaged to: no state, and the two states with owners by nobody.
fn damaged(word: HeaderWord) -> Vec<u64> {
    let by = |state, owner| HeaderWord::new(state, owner, word.generation()).0;
    let mut words = vec![word.0 & !15 | 9, word.0 | 15];
    for owner in NOBODYS {
        words.extend([by(State::Writing, owner), by(State::Leaving, owner)]);
    }
    words
}

/// Objects of all keys; then every word of `damaged` is some header's.
fn damage_headers(raw: &Raw, layout: &Layout, user: &User) {
    for key in 0..KEYS {
        user.put(key);
    }
    let mut places = Vec::new();
    let is_valid = |seen: &Seen| seen.state == State::Valid;
    user.live.core().objects(0, 0, u32::MAX, |seen| {
        if is_valid(&seen) {
            places.push(seen.place);
        }
    });
    let count = damaged(HeaderWord(0)).len();
    assert!(places.len() > count, "{} objects", places.len());
    for (i, place) in places.iter().take(count).enumerate() {
        let at = layout.header(0, place.header);
        raw.store(at, damaged(HeaderWord(raw.load(at)))[i]);
    }
}

fn serves(user: &User) {
    for key in 0..2 * KEYS {
        user.evict(key);
        assert!(user.put(key), "key {key}");
        assert_eq!(user.get(key), Some(true), "key {key}");
    }
}

#[test]
fn headers_that_are_nobodys_return_when_the_domain_is_attached_again() {
    let (raw, layout) = Raw::formatted();
    let user = join(&raw);
    damage_headers(&raw, &layout, &user);
    assert!(stranded(&user, &layout) > 0);
    serves(&user);
    user.live.end();
    let again = join(&raw);
    assert_eq!(stranded(&again, &layout), 0, "{:?}", chunk_use(&again));
    again.live.core().objects(0, 0, u32::MAX, |seen| {
        assert!(seen.damage.is_none(), "{seen:?}");
    });
    serves(&again);
    again.live.end();
}

#[test]
fn a_damaged_header_is_left_to_those_who_may_be_storing_for_it() {
    let (raw, layout) = Raw::formatted();
    let (writer, first) = (join(&raw), join(&raw));
    let mut scratch = Scratch::default();
    let reserved = writer
        .live
        .core()
        .reserve(&writer.digest(0), LARGE, &mut scratch)
        .expect("room");
    let at = layout.header(0, reserved.header);
    for word in damaged(HeaderWord(raw.load(at))) {
        raw.store(at, word);
        let another = join(&raw);
        another.live.sweep();
        another.live.core().sweep_orphans(own(another.live.core()));
        assert_eq!(stranded(&another, &layout), 4, "{word:#x}");
        another.live.end();
    }
    first.live.end();
    writer.live.end();
    let alone = join(&raw);
    assert_eq!(stranded(&alone, &layout), 0);
    alone.live.end();
}

fn own(core: &Core<Mapped>) -> &Own {
    core.own.as_ref().expect("attached for writing")
}

/// A process without a lock, hence dead to all others, that holds a reservation of four chunks in slot `process`; then its
/// slot's word is damaged to `word`.
fn die(raw: &Raw, layout: &Layout, user: &User, process: u32, word: ProcessWord) {
    let dead = Raw::core(raw.mapped(), layout, 0, process);
    dead.enter(own(&dead), process);
    let mut scratch = Scratch::default();
    dead.reserve(&user.digest(0), LARGE, &mut scratch)
        .expect("room");
    dead.mem.store(layout.process(0, process), word.0);
}

#[test]
fn a_slot_whose_word_says_free_is_swept_by_whoever_takes_it() {
    for word in [
        ProcessWord::new(Life::Free, 1),
        ProcessWord(2 | 1 << 2),
        ProcessWord(3),
    ] {
        let (raw, layout) = Raw::formatted();
        let user = join(&raw);
        die(&raw, &layout, &user, 1, word);
        user.live.sweep();
        assert_eq!(
            stranded(&user, &layout),
            4,
            "only who takes the slot can tell"
        );
        let heir = join(&raw);
        assert_eq!(own(heir.live.core()).process, 1);
        assert_eq!(stranded(&user, &layout), 0);
        heir.live.end();
        user.live.end();
    }
}

#[test]
fn an_object_whose_chain_goes_round_and_whose_size_is_damaged_is_not_published() {
    let (raw, layout) = Raw::formatted();
    let user = join(&raw);
    let core = user.live.core();
    let mut scratch = Scratch::default();
    let shape = Shape {
        units: 1,
        unit_bytes: 1000,
        ..LARGE
    };
    let place = core
        .reserve(&user.digest(0), shape, &mut scratch)
        .expect("room");
    let slot = scratch.slots[0];
    let mut bytes = vec![7; 1000];
    core.write(place, 0, Buffers::List(&piece(&mut bytes)), &mut scratch)
        .expect("stored");
    let table = layout.table(0, slot);
    raw.store(table, raw.load(table) & 0xFFFF_FFFF | u64::from(slot) << 32);
    let size = layout.header(0, place.header) + 24;
    raw.store(size, raw.load(size) & 0xFFFF_FFFF | (1 << 24) << 32);
    raw.store(size + 8, raw.load(size + 8) | 0xFFFF);
    assert!(core.commit(place, &mut scratch).is_err());
    core.abort(place);
    assert_eq!(user.get(0), None);
    user.live.end();
}
