//! Processes of one host as threads on one mapping, where a race detector sees them meet. Handles have a mapping each, so
//! that one word has two addresses, and the threads of one handle share its locks. Nothing is damaged here.

use crate::bed::{KEYS, Raw, UUID, content, piece, shape};
use crate::change::Random;
use crate::setting;
use hymcache_region::buffers::{Buffers, Piece};
use hymcache_region::core::{Core, Own, Place, Scratch};
use hymcache_region::digest::{Digest, Digester};
use hymcache_region::hint::Terms;
use hymcache_region::mapped::Mapped;
use hymcache_region::memory::{Memory, Step};
use hymcache_region::read::Units;
use hymcache_region::ring::Cursor;
use hymcache_region::write::Shape;
use std::time::{Duration, Instant};

/// How long they work side by side.
const MILLISECONDS: u64 = 500;
/// Domain and process slot of each.
const NEIGHBOURS: [(u32, u32); 4] = [(0, 1), (0, 2), (0, 3), (1, 1)];

/// One mapping for several processes.
#[derive(Clone, Copy)]
struct Shared<'a>(&'a Mapped);

impl Memory for Shared<'_> {
    fn load(&self, at: u64) -> u64 {
        self.0.load(at)
    }
    fn store(&self, at: u64, value: u64) {
        self.0.store(at, value);
    }
    fn cas(&self, at: u64, old: u64, new: u64) -> Result<u64, u64> {
        self.0.cas(at, old, new)
    }
    fn add(&self, at: u64, value: u64) -> u64 {
        self.0.add(at, value)
    }
    fn flush(&self, at: u64, len: u64, step: Step) {
        self.0.flush(at, len, step);
    }
    fn invalidate(&self, at: u64, len: u64, step: Step) {
        self.0.invalidate(at, len, step);
    }
    fn store_fence(&self, step: Step) {
        self.0.store_fence(step);
    }
    fn full_fence(&self, step: Step) {
        self.0.full_fence(step);
    }
    fn prefetch(&self, at: u64) {
        self.0.prefetch(at);
    }
    fn copy_in(&self, at: u64, from: Piece, crc: u32) -> Option<u32> {
        self.0.copy_in(at, from, crc)
    }
    fn copy_out(&self, at: u64, to: Piece, crc: u32, whole: u64) -> Option<u32> {
        self.0.copy_out(at, to, crc, whole)
    }
    fn crc(&self, crc: u32, bytes: &[u8]) -> u32 {
        self.0.crc(crc, bytes)
    }
    fn is_intact(&self) -> bool {
        self.0.is_intact()
    }
}

struct Neighbour<'a> {
    core: Core<Shared<'a>>,
    digester: Digester,
    scratch: Scratch,
    cursors: [Cursor; 4],
}

impl<'a> Neighbour<'a> {
    fn new(core: Core<Shared<'a>>) -> Self {
        let digester = Digester::new(&UUID, &[7; 32]);
        let one = Self {
            core,
            digester,
            scratch: Scratch::default(),
            cursors: Default::default(),
        };
        one.enter();
        one
    }

    /// Takes its slot, as a process that dies at once and its heir do.
    fn enter(&self) {
        self.core.enter(self.own(), 1);
    }

    fn own(&self) -> &Own {
        self.core.own.as_ref().expect("stores")
    }

    fn digest(&self, key: usize) -> Digest {
        self.digester.digest(&key.to_le_bytes())
    }

    fn shape(key: usize) -> Shape {
        let (units, unit_bytes) = shape(key);
        Shape {
            units,
            unit_bytes,
            sections: 1,
            namespace: 0,
        }
    }

    fn put(&mut self, key: usize) {
        let (digest, mut bytes) = (self.digest(key), content(key));
        let list = piece(&mut bytes);
        let scratch = &mut self.scratch;
        let _ = self
            .core
            .put(&digest, Self::shape(key), Buffers::List(&list), scratch);
    }

    /// `None`: a miss. Else whether the bytes are the key's.
    fn get(&mut self, key: usize) -> Option<bool> {
        let (digest, expected) = (self.digest(key), content(key));
        let mut bytes = vec![0; expected.len()];
        let list = piece(&mut bytes);
        let scratch = &mut self.scratch;
        let got = self
            .core
            .get(&digest, Units::ALL, Buffers::List(&list), scratch);
        got.ok().map(|_| bytes == expected)
    }

    /// Reserves and writes; then commits, aborts, or dies and is swept.
    fn store_in_steps(&mut self, key: usize, end: u64) {
        let (digest, mut bytes) = (self.digest(key), content(key));
        let reserved = self
            .core
            .reserve(&digest, Self::shape(key), &mut self.scratch);
        let Ok(place) = reserved else { return };
        let list = piece(&mut bytes);
        let (core, scratch) = (&self.core, &mut self.scratch);
        let _ = core.write(place, 0, Buffers::List(&list), scratch);
        match end {
            0 if core.commit(place, scratch).is_ok() => {}
            1 => self.enter(),
            _ => core.abort(place),
        }
    }

    /// Rings, lookups, leases, counters.
    fn advise(&mut self, key: usize) {
        let (core, own) = (&self.core, self.core.own.as_ref().expect("stores"));
        let mut places: Vec<Place> = Vec::new();
        core.lookup(
            KEYS,
            |i| Some(self.digest((key + i) % KEYS)),
            |p| places.push(p),
        );
        let terms = Terms {
            request: key as u64,
            deadline_ms: u64::MAX >> 16,
            priority: 1,
            units: 1,
        };
        core.prefetch(&[self.digest(key)], terms);
        core.withdraw(key as u64);
        let [a, b, c, d] = &mut self.cursors;
        for (domain, cursor) in [(0, a), (1, b)] {
            core.hints(domain, cursor, 99, |_, _| ());
        }
        for (domain, cursor) in [(0, c), (1, d)] {
            core.news(domain, cursor, 99, |_, _| ());
        }
        core.show(own);
        core.tally(own);
        core.send_touches(own);
        core.drain_touches(own);
    }

    fn inspect(&mut self) {
        for domain in 0..2 {
            let mut places = Vec::new();
            self.core
                .objects(domain, 0, u32::MAX, |seen| places.push(seen.place));
            for place in places {
                let _ = self.core.verify(place, &mut self.scratch);
            }
            self.core.chunk_use(domain);
            self.core.activity(domain);
            self.core.processes(domain);
        }
    }

    fn work(&mut self, seed: u64, until: Instant) -> u64 {
        let (mut random, mut hits) = (Random::new(seed), 0);
        while Instant::now() < until {
            let key = random.below(KEYS as u64) as usize;
            match random.below(12) {
                0 => _ = self.core.evict_key(&self.digest(key)),
                1 => _ = self.core.sweep_orphans(self.own()),
                2 => self.advise(key),
                3 => self.store_in_steps(key, random.below(3)),
                4 => self.inspect(),
                5..8 => self.put(key),
                _ => {
                    if let Some(is_right) = self.get(key) {
                        assert!(is_right, "key {key}: wrong bytes");
                        hits += 1;
                    }
                }
            }
        }
        hits
    }
}

#[test]
fn processes_that_share_a_mapping_never_read_wrong_bytes() {
    let (raw, layout) = Raw::formatted();
    let mapped = raw.mapped();
    let cores =
        NEIGHBOURS.map(|(domain, process)| Raw::core(Shared(&mapped), &layout, domain, process));
    let mut neighbours = cores.map(Neighbour::new);
    let until = Instant::now() + Duration::from_millis(setting("HYMCACHE_FLIP_MS", MILLISECONDS));
    let hits: Vec<u64> = std::thread::scope(|scope| {
        let start = |(one, seed): (_, u64)| {
            let one: &mut Neighbour = one;
            scope.spawn(move || one.work(seed, until))
        };
        let threads: Vec<_> = neighbours.iter_mut().zip(1..).map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    println!("hits {hits:?}");
    assert!(hits.iter().all(|&hits| hits > 0), "{hits:?}");
    assert_eq!(mapped.strays(), 0);
}
