//! Two owners: a second host takes a domain whose owner lives, as a damaged owner line lets it, at every single step of
//! what the first one stores. Both go on. No order between them is left, so checksums alone keep their objects apart.

use crate::actor::Mutation;
use crate::mutants::CRCS;
use crate::scenario::digest;
use crate::stage::{Stage, Wrong, find, put, read_at, wrong_bytes};
use hymcache_region::attach::empty_domain;

const KEYS: [usize; 3] = [0, 1, 2];
/// Steps of the first owner between two looks of the others.
const STEPS: u64 = 25;

/// The domain is taken after `stop` steps of the first owner. True when that one had ended before.
fn take(mutation: &Mutation, stop: u64) -> (bool, Wrong) {
    let stage = Stage::new(mutation, stop);
    let other = stage.join(2, 1, 0);
    let mut first = stage.spawn(1, |core| {
        core.enter(core.own.as_ref().expect("attached for writing"), 1);
        for (key, version) in [(2, 1), (0, 2), (1, 3), (2, 4)] {
            core.evict_key(&digest(key));
            put(core, key, version);
        }
    });
    let mut ended = (0..stop).any(|_| first.resume());
    let was_over = ended;
    empty_domain(&stage.memory(1), &stage.layout, 0, 0);
    let second = stage.join(1, 0, 0);
    let (mut wrong, mut version) = (Wrong::new(), 10);
    while wrong.is_empty() {
        for key in KEYS {
            version += 1;
            put(&second, key, version);
            for reader in [&second, &other] {
                let read = find(reader, key).map(|place| read_at(reader, place));
                wrong.extend(read.map_or_else(Wrong::new, |read| wrong_bytes(key, &read)));
            }
        }
        if ended {
            break;
        }
        ended = (0..STEPS).any(|_| first.resume());
    }
    if !ended {
        first.crash();
    }
    (was_over, wrong)
}

/// The first step at which a read goes wrong.
fn first_wrong(mutation: &Mutation) -> Option<(u64, Wrong)> {
    for stop in 0.. {
        let (ended, wrong) = take(mutation, stop);
        if !wrong.is_empty() {
            return Some((stop, wrong));
        }
        if ended {
            assert!(stop > 300, "the first owner ended after {stop} steps");
            break;
        }
    }
    None
}

#[test]
fn a_domain_that_is_taken_while_its_owner_stores_shows_nobody_wrong_bytes() {
    assert_eq!(first_wrong(&Mutation::default()), None);
}

#[test]
fn two_owners_without_checksums_are_caught() {
    assert!(first_wrong(&Mutation::default().and_blind(&CRCS)).is_some());
}
