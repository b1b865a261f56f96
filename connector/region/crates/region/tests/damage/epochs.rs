//! Writers of a former epoch, on a host that nobody fenced: they go on storing where the old layout had things.

use crate::bed::{CHUNK_BYTES, KEYS, Raw, User, Zombie};
use crate::change::Random;
use crate::setting;
use hymcache_region::region::Namespace;
use hymcache_region::write::Shape;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long old and new writers run side by side.
const MILLISECONDS: u64 = 1500;
/// The new epoch's chunks are of another size.
const NEW_CHUNK_BYTES: u64 = 128 << 10;

fn store_until(end: &AtomicBool, zombie: &Zombie, user: &User, puts: &AtomicU64) {
    let mut random = Random::new(9);
    while !end.load(Ordering::Relaxed) {
        let key = random.below(KEYS as u64) as usize;
        puts.fetch_add(u64::from(zombie.put(user, key)), Ordering::Relaxed);
        zombie.evict(user, random.below(KEYS as u64) as usize);
    }
}

#[test]
fn writers_of_a_former_epoch_never_make_a_read_wrong() {
    let (raw, layout) = Raw::formatted();
    // Cores without locks, as those of another host are, and without the look at the epoch that requests begin with.
    let zombies: Vec<_> = (0..2).map(|domain| raw.zombie(&layout, domain)).collect();
    raw.format_again(NEW_CHUNK_BYTES);
    let users: Vec<User> = (0..2)
        .map(|domain| User::new(raw.attach(domain, false).expect("attach")))
        .collect();
    let (end, old_puts) = (AtomicBool::new(false), AtomicU64::new(0));
    let until = Instant::now() + Duration::from_millis(setting("HYMCACHE_FLIP_MS", MILLISECONDS));
    let (mut hits, mut random) = (0, Random::new(5));
    std::thread::scope(|scope| {
        let spawn = |zombie| {
            let (end, old_puts, user) = (&end, &old_puts, &users[0]);
            scope.spawn(move || store_until(end, zombie, user, old_puts))
        };
        let writers: Vec<_> = zombies.iter().map(spawn).collect();
        while Instant::now() < until {
            let key = random.below(KEYS as u64) as usize;
            let user = &users[random.below(2) as usize];
            match user.get(key) {
                Some(is_right) => {
                    assert!(is_right, "key {key}: wrong bytes");
                    hits += 1;
                }
                None => _ = user.put(key),
            }
        }
        end.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("no panic"); // by hand: race detectors do not see what the scope's own waiting orders
        }
    });
    let old_puts = old_puts.load(Ordering::Relaxed);
    println!("{hits} hits beside {old_puts} puts of the former epoch");
    assert!(hits > 10 && old_puts > 10, "nothing was tried");
    assert!(users.iter().all(|user| user.strays() == 0));
    for user in users {
        user.live.end();
    }
}

#[test]
fn a_process_that_leaves_after_a_format_gives_nothing_of_the_new_epoch_back() {
    let ((raw, layout), (other, _)) = (Raw::formatted(), Raw::formatted());
    let former = raw.attach(0, false).expect("attach");
    other.format_again(CHUNK_BYTES);
    let current = other.attach(0, false).expect("attach");
    let shape = Shape {
        units: 1,
        unit_bytes: 4096,
        sections: 1,
        namespace: 0,
    };
    let key = Namespace::new(&current, [1; 32]).digest(b"being stored");
    let place = current.reserve(&key, shape).expect("there is room");
    raw.restore(&other.image()); // as a host does that does not see the former process's locks
    former.end();
    let header = layout.header(0, place.header);
    assert_eq!(raw.load(header), other.load(header), "it was given up");
    current.end();
}
