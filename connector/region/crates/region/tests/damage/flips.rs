//! Damage in flight: a thread flips bits of directory, tables, chunk words, process slots and rings all the time, while
//! the domain's owner and another host use the region. A word that is read twice is two different words here.

use crate::bed::{KEYS, Raw, User};
use crate::change::Random;
use crate::setting;
use hymcache_region::layout::Layout;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long bytes are flipped in the test suite.
const MILLISECONDS: u64 = 1500;

/// Leases that the users took end within two seconds.
const LEASES_END: Duration = Duration::from_millis(2500);

/// Flips, and mostly flips back soon after, so that much of the region stays usable.
fn flipper(raw: &Raw, layout: &Layout, end: &AtomicBool, flips: &AtomicU64) {
    let mut random = Random::new(77);
    let mut open: Vec<(u64, u64)> = Vec::new();
    while !end.load(Ordering::Relaxed) {
        let words = (layout.pool_at - layout.domain_at) / 8;
        let at = layout.domain_at + 8 * random.below(words);
        let bits = 1 << random.below(64);
        raw.flip(at, bits);
        open.push((at, bits));
        if open.len() > 8 {
            let index = random.below(open.len() as u64) as usize;
            let (at, bits) = open.swap_remove(index);
            raw.flip(at, bits);
        }
        flips.fetch_add(1, Ordering::Relaxed);
        for _ in 0..random.below(2000) {
            std::hint::spin_loop();
        }
    }
}

fn user(user: &User, seed: u64, until: Instant) -> (u64, u64) {
    let mut random = Random::new(seed);
    let (mut hits, mut wrong) = (0, 0);
    while Instant::now() < until {
        let key = random.below(KEYS as u64) as usize;
        match random.below(10) {
            8 => user.advise(&mut random, &user.lookup(0)),
            9 => wrong += u64::from(user.view(key) == Some(false)),
            0 => _ = user.lookup(key),
            1 => _ = user.contains(),
            2 => user.evict(key),
            3 => _ = user.put(key),
            4 => user.store_in_steps(key, random.below(3) > 0),
            5 => _ = user.inspect(),
            _ => match user.get(key) {
                Some(is_right) => {
                    hits += 1;
                    wrong += u64::from(!is_right);
                }
                None => _ = user.put(key),
            },
        }
    }
    (hits, wrong)
}

#[test]
fn bytes_that_change_under_a_reader_are_misses_at_worst() {
    let (raw, layout) = Raw::formatted();
    let users: Vec<User> = (0..2)
        .map(|domain| User::new(raw.attach(domain, false).expect("attach")))
        .collect();
    let (end, flips) = (AtomicBool::new(false), AtomicU64::new(0));
    let until = Instant::now() + Duration::from_millis(setting("HYMCACHE_FLIP_MS", MILLISECONDS));
    let results: Vec<(u64, u64)> = std::thread::scope(|scope| {
        scope.spawn(|| flipper(&raw, &layout, &end, &flips));
        let threads: Vec<_> = [(0, 1), (0, 2), (1, 3)]
            .into_iter()
            .map(|(domain, seed)| {
                let one = &users[domain];
                scope.spawn(move || user(one, seed, until))
            })
            .collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect();
        end.store(true, Ordering::Relaxed);
        results
    });
    println!(
        "{} flips, (hits, wrong) {results:?}",
        flips.load(Ordering::Relaxed)
    );
    assert!(
        results.iter().all(|(hits, wrong)| *hits > 0 && *wrong == 0),
        "{results:?}"
    );
    assert!(users.iter().all(|user| user.strays() == 0));
    serves_again(&users[0]);
    for user in users {
        user.live.end();
    }
}

/// With nobody flipping any more, the owner's domain takes objects and gives them back.
fn serves_again(owner: &User) {
    std::thread::sleep(LEASES_END);
    owner.live.sweep();
    let mut stored = 0;
    for key in KEYS..KEYS + 200 {
        if owner.put(key) {
            stored += 1;
            assert_eq!(owner.get(key), Some(true), "key {key}");
        }
    }
    assert!(stored > 190, "{stored} of 200 objects were stored");
}
