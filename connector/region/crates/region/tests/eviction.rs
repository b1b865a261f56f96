//! Hit rates of the shipping eviction beside exact LRU and ARC, on made-up requests small enough for every test run.
//!
//! The modules are the trace benchmark's, which says more on real traces.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts of requests are far below 2^52"
)]

#[path = "../examples/tracebench/reference.rs"]
mod reference;
#[path = "../examples/tracebench/replay.rs"]
#[expect(dead_code, reason = "the benchmark reports more")]
mod replay;
#[path = "../examples/tracebench/trace.rs"]
#[expect(dead_code, reason = "the benchmark reads files")]
mod trace;

use replay::{Spread, replay};
use trace::{Chain, Random, with_scans};

/// Objects that fit.
const SIZE: usize = 1000;
/// What an unlucky place of the keys may cost; the better of LRU and ARC is further above the other.
const SLACK: f64 = 0.01;

/// A number whose probability falls with its square root or faster: the smallest of three.
fn popular(random: &mut Random, n: usize) -> u64 {
    (0..3).map(|_| random.below(n)).min().unwrap_or(0) as u64
}

/// Prompts that share their heads: the popular ones come back for ever, each time with a tail of their own.
fn documents() -> Vec<Chain> {
    let mut random = Random::new(11);
    let request = |i: u64| {
        let head = popular(&mut random, 900) << 8;
        let tail = 1 << 30 | i << 8;
        (head..head + 12).chain(tail..tail + 8).collect()
    };
    (0..3000).map(request).collect()
}

/// Conversations that grow by each turn and end after some: nothing is worth more than what was used last.
fn conversations() -> Vec<Chain> {
    const TURNS: u64 = 6;
    let mut random = Random::new(12);
    let mut open: Vec<(u64, u64)> = (0..40).map(|name| (name, 0)).collect();
    let mut names = open.len() as u64;
    let request = |_| {
        let (name, turn) = &mut open[random.below(40)];
        if *turn == TURNS {
            (*name, *turn) = (names, 0);
            names += 1;
        }
        *turn += 1;
        let first = *name << 8;
        (first..first + 8 * *turn).collect()
    };
    (0..3000).map(request).collect()
}

/// Hit rates: exact LRU, exact ARC, the region.
fn hit_rates(trace: &[Chain]) -> [f64; 3] {
    let region = replay(trace, SIZE, Spread::ALONE, 1, 7).expect("a region of this process");
    [
        reference::lru(trace, SIZE),
        reference::arc(trace, SIZE),
        region.hit_rate,
    ]
}

#[test]
fn scans_do_not_push_out_what_is_asked_for_again() {
    let [lru, arc, region] = hit_rates(&with_scans(&documents(), 1));
    assert!(arc > 2.0 * lru, "LRU {lru} and ARC {arc} say nothing");
    assert!(region >= arc - SLACK, "{region}, ARC {arc}, LRU {lru}");
}

#[test]
fn where_only_recency_counts_lru_leads() {
    let [lru, arc, region] = hit_rates(&conversations());
    assert!(
        lru > arc + 3.0 * SLACK,
        "LRU {lru} and ARC {arc} say nothing"
    );
    assert!(region >= lru - SLACK, "{region}, LRU {lru}, ARC {arc}");
}
