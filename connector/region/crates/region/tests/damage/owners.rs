//! Damage to what says who owns a domain, and a second host that it let in: its processes' locks are not seen on the
//! first one, which notices nevertheless.

use crate::bed::{Raw, User};
use hymcache_region::attach::empty_domain;
use hymcache_region::domain::{OwnerLine, load_owner, store_owner};
use hymcache_region::layout::{DOMAIN_OWNER_AGAIN_AT, DOMAIN_OWNER_AT, Layout};
use std::time::{Duration, Instant};

/// The janitor looks ten times a second.
const NOTICED: Duration = Duration::from_secs(5);

/// Damages whatever says who owns domain 0.
fn forget_owner(raw: &Raw, layout: &Layout) {
    for place in [DOMAIN_OWNER_AT, DOMAIN_OWNER_AGAIN_AT] {
        raw.flip(layout.domain(0) + place + 8, 1);
    }
}

#[test]
fn a_host_whose_domain_was_taken_notices_and_stores_nothing_more() {
    let (raw, layout) = Raw::formatted();
    let first = User::new(raw.attach(0, false).expect("attach"));
    assert!(first.put(0));
    let other = raw.mapped();
    let old = load_owner(&other, &layout, 0).expect("an owner");
    let turn = empty_domain(&other, &layout, 0, old.turn);
    let owner = OwnerLine {
        turn,
        host: [7; 16],
        ..old
    };
    store_owner(&other, &layout, 0, &owner);
    let start = Instant::now();
    while first.live.is_intact() {
        assert!(
            start.elapsed() < NOTICED,
            "it goes on in another host's domain"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!first.put(1) && first.get(0).is_none());
    first.live.end();
    assert_eq!(load_owner(&other, &layout, 0), Some(owner));
}

#[test]
fn an_owner_line_that_is_damaged_for_a_while_costs_nothing() {
    let (raw, layout) = Raw::formatted();
    let first = User::new(raw.attach(0, false).expect("attach"));
    assert!(first.put(0));
    forget_owner(&raw, &layout);
    std::thread::sleep(Duration::from_millis(300)); // a few looks of the janitor
    assert!(first.live.is_intact() && first.get(0) == Some(true));
    forget_owner(&raw, &layout);
    first.live.end();
}
