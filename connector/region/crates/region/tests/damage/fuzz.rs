//! Damage at rest: the region is overwritten, then attached, looked up, read, written, evicted and reported on.
//!
//! Nothing may panic, hang, leave the region, or give bytes that are not the key's. A round follows from its seed alone,
//! so a run can go on where another one ended. `corpus.txt` holds seeds that are run first.

use crate::aimed::{aim, reservation};
use crate::bed::{KEYS, Raw, User, content};
use crate::change::{Damage, Random, damage, forge_rings};
use crate::setting;
use hymcache_region::core::Place;
use hymcache_region::layout::Layout;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes overwritten in a run of the test suite.
const BYTES: u64 = 4_000_000;
/// Sets the random numbers of rings and leases apart from the others.
const ADVICE: u64 = 0x00AD_51CE;
/// Sets those of the aimed damage apart.
const AIMED: u64 = 0x000A_13ED;
/// Sets those of damaged reservations apart.
const RESERVED: u64 = 0x0000_5E12;
/// No round takes this long, on any machine.
const HANG: Duration = Duration::from_secs(60);

/// Ends the process when no round has ended for too long: a hang cannot report itself.
fn watch(round: &'static AtomicU64) {
    std::thread::spawn(move || {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = round.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > HANG && now != u64::MAX {
                eprintln!("seed {now}: hangs");
                std::process::abort();
            }
        }
    });
}

/// Names the round that does not end well: by a panic in the last lines of the output, by a signal in a file.
struct Watched {
    seed: u64,
    bytes: u64,
}

impl Watched {
    const FILE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/fuzz-round");

    fn new(seed: u64, bytes: u64) -> Self {
        let text = format!("seed {seed} after {bytes} bytes");
        std::fs::write(Self::FILE, text).expect("a file that names the round");
        Self { seed, bytes }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, bytes } = self;
            eprintln!("seed {seed} failed after {bytes} bytes; keep it in corpus.txt");
        } else {
            let _ = std::fs::remove_file(Self::FILE);
        }
    }
}

struct Bench {
    raw: Raw,
    layout: Layout,
    image: Vec<u64>,
}

impl Bench {
    /// A region in which both domains hold objects, retired ones among them.
    fn new() -> Self {
        let (raw, layout) = Raw::formatted();
        let users: Vec<User> = (0..2)
            .map(|domain| User::new(raw.attach(domain, false).expect("attach")))
            .collect();
        for key in 0..KEYS {
            assert!(users[key % 2].put(key));
        }
        users[0].evict(0);
        users[1].evict(5);
        for user in users {
            user.live.end();
        }
        let image = raw.image();
        Self { raw, layout, image }
    }

    /// One round. Returns what was overwritten and how many reads hit.
    fn round(&self, seed: u64) -> (Damage, u64) {
        let mut random = Random::new(seed);
        self.raw.restore(&self.image);
        let attached_before = random.below(2) == 0;
        let mut users = Vec::new();
        if attached_before {
            users.extend(self.attach(&mut random));
        }
        let mut done = damage(&self.raw, &self.layout, &mut random);
        // Drawn on their own, so that what a seed does otherwise stays what it was when it was saved.
        let mut advice = Random::new(seed ^ ADVICE);
        if advice.below(2) == 0 {
            forge_rings(&self.raw, &self.layout, &mut advice);
        }
        let mut aimed = Random::new(seed ^ AIMED);
        if aimed.below(3) == 0 {
            aim(&self.raw, &self.layout, &mut aimed, &mut done);
        }
        if !attached_before {
            users.extend(self.attach(&mut random));
        }
        let mut aimed_at = Random::new(seed ^ RESERVED);
        let mut hits = 0;
        for user in &users {
            hits += use_everything(user, &mut random, done.forged, seed);
            let mut places = user.lookup(0);
            places.extend(guesses(user, &mut advice));
            user.advise(&mut advice, &places);
            for key in KEYS..KEYS + 4 {
                user.store_beside(key, aimed.below(2) == 0, |place| {
                    if aimed_at.below(3) == 0 {
                        reservation(&self.raw, &self.layout, &mut aimed_at, place);
                    }
                });
            }
            for key in 0..KEYS {
                let is_right = user.view(key);
                assert!(
                    is_right != Some(false) || done.forged,
                    "seed {seed}: key {key}: wrong bytes in view"
                );
            }
        }
        for user in users {
            assert_eq!(user.strays(), 0, "seed {seed}: accesses outside the region");
            user.live.end();
        }
        (done, hits)
    }

    fn attach(&self, random: &mut Random) -> Vec<User> {
        let read_only = random.below(4) == 0;
        [(0, false), (1, read_only)]
            .into_iter()
            .filter_map(|(domain, read_only)| self.raw.attach(domain, read_only).ok())
            .map(User::new)
            .collect()
    }
}

fn use_everything(user: &User, random: &mut Random, forged: bool, seed: u64) -> u64 {
    let mut hits = 0;
    let places = user.lookup(random.below(KEYS as u64) as usize);
    user.contains();
    for key in 0..KEYS {
        if let Some(is_right) = user.get(key) {
            assert!(is_right || forged, "seed {seed}: key {key}: wrong bytes");
            hits += 1;
        }
    }
    for place in places.into_iter().chain(guesses(user, random)) {
        let len = content(random.below(KEYS as u64) as usize).len();
        user.read(place, random.below(3) as u32, random.below(6) as u32, len);
    }
    for _ in 0..6 {
        let key = KEYS + random.below(KEYS as u64) as usize;
        match random.below(4) {
            0 => user.evict(key - KEYS),
            1 => user.store_in_steps(key, random.below(2) == 0),
            _ => _ = user.put(key),
        }
        if let Some(is_right) = user.get(key) {
            assert!(is_right || forged, "seed {seed}: key {key}: wrong bytes");
            hits += 1;
        }
    }
    hits + user.inspect()
}

/// References that nobody gave out, to nowhere too.
fn guesses(user: &User, random: &mut Random) -> Vec<Place> {
    let headers = u64::from(user.live.core().layout.headers());
    (0..4)
        .map(|_| Place {
            domain: random.below(3) as u32,
            header: random.below(headers + 2) as u32,
            generation: random.below(4),
        })
        .collect()
}

#[test]
fn damaged_regions_are_misses_at_worst() {
    static ROUND: AtomicU64 = AtomicU64::new(u64::MAX);
    watch(&ROUND);
    let bench = Bench::new();
    let corpus = include_str!("corpus.txt").lines();
    let saved = corpus.filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let wanted = setting("HYMCACHE_FUZZ_BYTES", BYTES);
    let from = setting("HYMCACHE_FUZZ_FROM", 1_000);
    let (mut bytes, mut rounds, mut hits, mut told) = (0, 0_u64, 0, Instant::now());
    for seed in saved.chain(from..) {
        ROUND.store(seed, Ordering::Relaxed);
        let watched = Watched::new(seed, bytes);
        let (done, hit) = bench.round(seed);
        drop(watched);
        bytes += done.bytes;
        hits += hit;
        rounds += 1;
        if told.elapsed() > Duration::from_secs(20) {
            println!(
                "{bytes} of {wanted} bytes, {rounds} rounds, {hits} hits, next seed {}",
                seed + 1
            );
            told = Instant::now();
        }
        if bytes >= wanted {
            println!("{bytes} bytes overwritten in {rounds} rounds, {hits} hits, last seed {seed}");
            break;
        }
    }
    ROUND.store(u64::MAX, Ordering::Relaxed);
    assert!(
        hits > rounds,
        "{hits} hits in {rounds} rounds: nothing was tried"
    );
}
