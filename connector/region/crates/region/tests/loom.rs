//! The words that processes of one host share, under the interleavings and store orders that loom finds.
//!
//! Here memory is coherent, as inside one host: flushes do nothing, and what is tested is that two processes never own
//! one chunk or one header, that nothing is lost, and that a sweep and a late writer never miss each other. Payload is
//! not modelled. Each test searches within two preemptions for at most ten seconds; `HYMCACHE_LOOM_PREEMPTIONS` and
//! `HYMCACHE_LOOM_SECONDS` widen that.

use hymcache_region::buffers::{Buffers, Piece};
use hymcache_region::core::{Core, Extent, Identity, Own, Place, Scratch};
use hymcache_region::digest::Digest;
use hymcache_region::hint::Terms;
use hymcache_region::layout::{Counter, Geometry, Layout, Ring};
use hymcache_region::memory::{Check, Memory, Step};
use hymcache_region::ring::Cursor;
use hymcache_region::words::{ChunkWord, FreeChunks, HeaderWord, State};
use hymcache_region::write::Shape;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use std::collections::BTreeMap;

const CHUNKS: u32 = 2;

/// Words that exist on their own; all others are never touched in these tests and read 0.
struct Words(BTreeMap<u64, AtomicU64>);

#[derive(Clone)]
struct Coherent {
    words: Arc<Words>,
    blind: Option<Check>,
    /// A chunk word and what it must hold whenever payload is stored.
    watched: Option<(u64, ChunkWord)>,
}

impl Coherent {
    fn word(&self, at: u64) -> Option<&AtomicU64> {
        self.words.0.get(&at)
    }
}

impl Memory for Coherent {
    fn load(&self, at: u64) -> u64 {
        self.word(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn store(&self, at: u64, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::Release);
        }
    }

    fn cas(&self, at: u64, old: u64, new: u64) -> Result<u64, u64> {
        let Some(word) = self.word(at) else {
            return Err(0);
        };
        let result = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        fence(Ordering::SeqCst); // loom has no sequentially consistent accesses
        result
    }

    fn add(&self, at: u64, value: u64) -> u64 {
        self.word(at)
            .map_or(0, |word| word.fetch_add(value, Ordering::AcqRel))
    }

    fn flush(&self, _: u64, _: u64, _: Step) {}
    fn invalidate(&self, _: u64, _: u64, _: Step) {}
    fn store_fence(&self, _: Step) {}
    fn full_fence(&self, _: Step) {}
    fn prefetch(&self, _: u64) {}

    fn copy_in(&self, _: u64, _: Piece, crc: u32) -> Option<u32> {
        if let Some((at, held)) = self.watched {
            let found = ChunkWord(self.load(at));
            assert_eq!(
                found, held,
                "stores into a chunk that is not its own any more"
            );
        }
        Some(crc)
    }

    fn copy_out(&self, _: u64, _: Piece, crc: u32, _: u64) -> Option<u32> {
        Some(crc)
    }

    fn crc(&self, crc: u32, bytes: &[u8]) -> u32 {
        hymcache_copy::crc32c(crc, bytes)
    }

    fn is_intact(&self) -> bool {
        true
    }

    fn judge(&self, check: Check, verdict: bool) -> bool {
        verdict || self.blind == Some(check)
    }
}

fn layout() -> Layout {
    Layout::new(Geometry {
        bytes: 1 << 20,
        granule: 4096,
        chunk_bytes: 64,
        domain_chunks: CHUNKS,
        domains: 1,
        sets: 1,
        table_lines: 1,
        processes: 3,
        namespaces: 1,
        quarantine_lines: 1,
        rings: [1; 4],
    })
    .expect("a valid geometry")
}

/// Headers that exist in the model: claims take the first free ones.
const HEADERS: u32 = 4;

fn memory(layout: &Layout, blind: Option<Check>) -> Coherent {
    let mut places = vec![
        layout.counter(0, Counter::Clock),
        layout.counter(0, Counter::FreeChunks),
        layout.counter(0, Counter::Quarantined),
    ];
    places.extend((0..8).map(|i| layout.tags(0, 0) + 8 * i).take(2)); // tags of the first four
    for header in 0..HEADERS {
        places.extend((0..8).map(|i| layout.header(0, header) + 8 * i));
        places.extend([layout.recency(0, header), layout.progress(0, header)]);
    }
    for local in 0..CHUNKS {
        places.push(layout.chunk_word(0, local));
        places.extend([layout.table(0, local), layout.table(0, local) + 8]);
    }
    for process in 0..3 {
        places.extend([layout.process(0, process), layout.process(0, process) + 64]);
    }
    place_words(places, blind, layout)
}

/// A ring alone: one line, and its ticket.
fn ring_memory(layout: &Layout, blind: Option<Check>) -> Coherent {
    let line = layout.ring_line(0, Ring::Prefetch, 0);
    let mut places: Vec<u64> = (0..8).map(|i| line + 8 * i).collect();
    places.push(layout.ring_ticket(0, Ring::Prefetch));
    place_words(places, blind, layout)
}

fn place_words(places: Vec<u64>, blind: Option<Check>, layout: &Layout) -> Coherent {
    let words = places
        .into_iter()
        .map(|at| (at, AtomicU64::new(0)))
        .collect();
    let mem = Coherent {
        words: Arc::new(Words(words)),
        blind,
        watched: None,
    };
    mem.store(layout.counter(0, Counter::FreeChunks), CHUNKS.into());
    mem
}

fn now_ms() -> u64 {
    1
}

fn core(mem: &Coherent, layout: &Layout, process: u32) -> Core<Coherent> {
    let identity = Identity {
        uuid: [1; 16],
        epoch: 1,
        software: false,
        formatted_seconds: 0,
    };
    let own = Own {
        domain: 0,
        process,
        extents: vec![Extent {
            local: 0,
            chunk: 0,
            count: CHUNKS,
        }],
    };
    Core::new(mem.clone(), layout.clone(), identity, Some(own), now_ms)
}

fn own(core: &Core<Coherent>) -> &Own {
    core.own.as_ref().expect("attached for writing")
}

fn key(n: u32) -> Digest {
    Digest {
        a: u64::from(n) + 1,
        b: 1,
        c: 1,
        tag: n + 1,
    }
}

const SHAPE: Shape = Shape {
    units: 1,
    unit_bytes: 64,
    sections: 1,
    namespace: 0,
};

fn put(core: &Core<Coherent>, n: u32) -> bool {
    let mut byte = [0_u8; 64];
    // SAFETY: the array outlives the call.
    let piece = [unsafe { Piece::new(byte.as_mut_ptr(), byte.len()) }];
    core.put(
        &key(n),
        SHAPE,
        Buffers::List(&piece),
        &mut Scratch::default(),
    )
    .is_ok()
}

/// What the domain's counter says: too many cost a search, too few an object that is evicted before its time.
fn counted(mem: &Coherent, layout: &Layout) -> i64 {
    FreeChunks(mem.load(layout.counter(0, Counter::FreeChunks))).count()
}

/// Every chunk is free or held by the one header whose table names it; every valid header has its chunk.
fn account(mem: &Coherent, layout: &Layout) -> (u32, u32) {
    let (mut free, mut held) = (0, 0);
    for local in 0..CHUNKS {
        let chunk = ChunkWord(mem.load(layout.chunk_word(0, local)));
        match chunk.header() {
            None => free += u32::from(chunk.is_free()),
            Some(header) => {
                let word = HeaderWord(mem.load(layout.header(0, header)));
                assert!(
                    chunk.is_kept_by(word),
                    "chunk {local} belongs to nobody: {word:?}"
                );
                let first = mem.load(layout.header(0, header) + 40) as u32;
                assert!(
                    word.is(State::Writing) || first == local,
                    "chunk {local} is not the one named"
                );
                held += 1;
            }
        }
    }
    let standing = (0..HEADERS)
        .filter(|&h| {
            let word = HeaderWord(mem.load(layout.header(0, h)));
            word.is(State::Valid) || word.is(State::Retired)
        })
        .count() as u32;
    assert_eq!(
        standing, held,
        "a header stands without its chunk, or a chunk without its header"
    );
    (free, held)
}

fn explore(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let number = |name: &str, default| {
        let given = std::env::var(name).ok();
        given
            .and_then(|given| given.parse().ok())
            .unwrap_or(default)
    };
    builder.preemption_bound = Some(number("HYMCACHE_LOOM_PREEMPTIONS", 2));
    let seconds = number("HYMCACHE_LOOM_SECONDS", 10) as u64;
    builder.max_duration = Some(std::time::Duration::from_secs(seconds));
    builder.max_branches = 100_000;
    builder.check(test);
}

/// Starts `body` as a process of its own.
fn process(
    mem: &Coherent,
    layout: &Layout,
    slot: u32,
    body: impl FnOnce(Core<Coherent>) + 'static,
) -> loom::thread::JoinHandle<()> {
    let core = core(mem, layout, slot);
    core.enter(own(&core), slot);
    loom::thread::spawn(move || body(core))
}

#[test]
fn two_puts_never_share_a_header_or_a_chunk() {
    explore(|| {
        let layout = layout();
        let mem = memory(&layout, None);
        let other = process(&mem, &layout, 0, |core| assert!(put(&core, 0)));
        let mine = core(&mem, &layout, 1);
        mine.enter(own(&mine), 1);
        assert!(put(&mine, 1));
        other.join().expect("no panic");
        assert_eq!(account(&mem, &layout), (0, 2));
    });
}

#[test]
fn two_evictors_free_a_chunk_once() {
    explore(|| {
        let layout = layout();
        let mem = memory(&layout, None);
        let first = core(&mem, &layout, 2);
        first.enter(own(&first), 2);
        assert!(put(&first, 0) && put(&first, 1));
        // Both need room, and both may find the same victim.
        let other = process(&mem, &layout, 0, |core| {
            put(&core, 2);
        });
        let mine = core(&mem, &layout, 1);
        mine.enter(own(&mine), 1);
        put(&mine, 3);
        other.join().expect("no panic");
        let (free, held) = account(&mem, &layout);
        assert_eq!(free + held, CHUNKS);
    });
}

/// A writer by reference against the reservation's end: either the chunks stay until it is done, or it does not begin.
fn late_writer(blind: Option<Check>) {
    explore(move || {
        let layout = layout();
        let mem = memory(&layout, blind);
        let reserver = core(&mem, &layout, 1);
        reserver.enter(own(&reserver), 1);
        let place = reserver
            .reserve(&key(0), SHAPE, &mut Scratch::default())
            .expect("room");
        let slot = mem.load(layout.header(0, place.header) + 40) as u32;
        let mut watching = mem.clone();
        watching.watched = Some((
            layout.chunk_word(0, slot),
            ChunkWord::held(place.header, place.generation),
        ));
        let other = process(&watching, &layout, 0, move |core| {
            let mut byte = [0_u8; 64];
            // SAFETY: the array outlives the call.
            let piece = [unsafe { Piece::new(byte.as_mut_ptr(), byte.len()) }];
            let _ = core.write(place, 0, Buffers::List(&piece), &mut Scratch::default());
        });
        reserver.abort(place);
        other.join().expect("no panic");
        reserver.sweep_orphans(own(&reserver));
        assert_eq!(account(&mem, &layout), (2, 0));
    });
}

#[test]
fn an_abort_and_a_late_writer_do_not_miss_each_other() {
    late_writer(None);
}

#[test]
#[should_panic(expected = "stores into a chunk that is not its own any more")]
fn an_abort_that_does_not_look_for_writers_is_caught() {
    late_writer(Some(Check::Unwritten));
}

#[test]
fn a_sweep_beside_a_put_takes_nothing_from_it() {
    explore(|| {
        let layout = layout();
        let mem = memory(&layout, None);
        let other = process(&mem, &layout, 0, |core| assert!(put(&core, 0)));
        let mine = core(&mem, &layout, 1);
        mine.enter(own(&mine), 1);
        mine.sweep_orphans(own(&mine));
        other.join().expect("no panic");
        assert_eq!(account(&mem, &layout), (1, 1));
        assert!(counted(&mem, &layout) >= 1, "a free chunk is not counted");
    });
}

#[test]
fn a_sweep_beside_an_eviction_leaves_no_free_chunk_uncounted() {
    explore(|| {
        let layout = layout();
        let mem = memory(&layout, None);
        let other = process(&mem, &layout, 0, |core| {
            assert!(put(&core, 0) && put(&core, 1) && put(&core, 2));
        });
        let mine = core(&mem, &layout, 1);
        mine.enter(own(&mine), 1);
        mine.sweep_orphans(own(&mine));
        other.join().expect("no panic");
        let (free, _) = account(&mem, &layout);
        assert!(
            counted(&mem, &layout) >= free.into(),
            "a free chunk is not counted"
        );
    });
}

/// A reservation of `sections` sections of a chunk each.
fn reserved(core: &Core<Coherent>, n: u32, sections: u8) -> Place {
    let shape = Shape { sections, ..SHAPE };
    let place = core.reserve(&key(n), shape, &mut Scratch::default());
    place.expect("room")
}

fn write(core: &Core<Coherent>, place: Place, section: u32) -> bool {
    let mut byte = [0_u8; 64];
    // SAFETY: the array outlives the call.
    let piece = [unsafe { Piece::new(byte.as_mut_ptr(), byte.len()) }];
    let (buffers, mut scratch) = (Buffers::List(&piece), Scratch::default());
    core.write(place, section, buffers, &mut scratch).is_ok()
}

#[test]
fn ranks_that_store_their_sections_at_once_are_both_counted() {
    explore(|| {
        let layout = layout();
        let mem = memory(&layout, None);
        let mine = core(&mem, &layout, 1);
        mine.enter(own(&mine), 1);
        let place = reserved(&mine, 0, 2);
        let other = process(&mem, &layout, 0, move |core| {
            assert!(write(&core, place, 1));
        });
        assert!(write(&mine, place, 0));
        other.join().expect("no panic");
        let published = mine.commit(place, &mut Scratch::default());
        assert!(published.is_ok(), "a section was not counted");
    });
}

#[test]
fn of_a_commit_and_an_abort_one_goes_on() {
    explore(|| {
        let layout = layout();
        let mem = memory(&layout, None);
        let mine = core(&mem, &layout, 1);
        mine.enter(own(&mine), 1);
        let place = reserved(&mine, 0, 1);
        assert!(write(&mine, place, 0));
        let other = process(&mem, &layout, 0, move |core| core.abort(place));
        let is_published = mine.commit(place, &mut Scratch::default()).is_ok();
        other.join().expect("no panic");
        mine.sweep_orphans(own(&mine));
        let held = u32::from(is_published);
        assert_eq!(account(&mem, &layout), (CHUNKS - held, held));
    });
}

#[test]
fn two_sweeps_free_a_chunk_that_nobody_holds_once() {
    explore(|| {
        let layout = layout();
        let mem = memory(&layout, None);
        // Of a header that is free: who let go of it died before its chunk.
        mem.store(layout.chunk_word(0, 0), ChunkWord::held(0, 0).0);
        mem.store(layout.counter(0, Counter::FreeChunks), 1);
        let other = process(&mem, &layout, 0, |core| _ = core.sweep_orphans(own(&core)));
        let mine = core(&mem, &layout, 1);
        mine.enter(own(&mine), 1);
        mine.sweep_orphans(own(&mine));
        assert!(put(&mine, 1) && put(&mine, 2)); // the first one is evicted where the chunk is not counted yet
        other.join().expect("no panic");
        let (free, held) = account(&mem, &layout);
        assert_eq!(free + held, CHUNKS);
    });
}

/// Two producers want the only line of a ring, a third process reads it.
fn two_producers(blind: Option<Check>) {
    let told = |n: u64| Terms {
        request: n,
        deadline_ms: 1 << 40,
        priority: n as u8,
        units: n as u32,
    };
    explore(move || {
        let layout = layout();
        let mem = ring_memory(&layout, blind);
        let other = process(&mem, &layout, 0, move |core| {
            core.prefetch(&[key(1)], told(2));
        });
        let mine = core(&mem, &layout, 1);
        mine.prefetch(&[key(2)], told(3));
        let mut cursor = Cursor { next: 1, gap_ms: 0 };
        mine.hints(0, &mut cursor, 9, |_, hint| {
            let a = hint.object.expect("a prefetch").a;
            let whole = (hint.terms.request, hint.terms.units) == (a, a as u32);
            assert!(whole, "an entry of two producers");
        });
        other.join().expect("no panic");
    });
}

#[test]
fn two_producers_never_make_one_entry_together() {
    two_producers(None);
}

#[test]
#[should_panic(expected = "an entry of two producers")]
fn a_ring_entry_that_is_not_checked_is_caught() {
    two_producers(Some(Check::RingCrc));
}
