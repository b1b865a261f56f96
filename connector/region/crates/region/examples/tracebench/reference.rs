//! LRU and ARC as published, exact and without regard to cost: what the region is compared with.

use crate::trace::Chain;
use std::collections::{BTreeMap, HashMap};

/// A cache of blocks.
trait Cache {
    fn has(&self, block: u64) -> bool;
    /// Uses a block, which comes in if it is not there.
    fn access(&mut self, block: u64);
}

/// Share of a trace's blocks that are found: of each chain, those before the first that is missing. The better of both
/// orders in which the blocks of a chain can be used.
fn hit_rate<C: Cache>(trace: &[Chain], new: impl Fn() -> C) -> f64 {
    let total: usize = trace.iter().map(Vec::len).sum();
    let run = |tail_first: bool| {
        let mut cache = new();
        let mut hits = 0;
        for chain in trace {
            hits += chain.iter().take_while(|&&block| cache.has(block)).count();
            let mut order = chain.clone();
            if tail_first {
                order.reverse();
            }
            for block in order {
                cache.access(block);
            }
        }
        hits as f64 / total as f64
    };
    run(true).max(run(false))
}

/// Hit rate of LRU with room for `size` blocks.
pub(crate) fn lru(trace: &[Chain], size: usize) -> f64 {
    hit_rate(trace, || Lru {
        size,
        list: List::default(),
    })
}

/// Hit rate of ARC with room for `size` blocks.
pub(crate) fn arc(trace: &[Chain], size: usize) -> f64 {
    hit_rate(trace, || Arc {
        size,
        ..Arc::default()
    })
}

/// Blocks in the order of their last use.
#[derive(Default)]
struct List {
    ticks: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    now: u64,
}

impl List {
    fn len(&self) -> usize {
        self.ticks.len()
    }

    fn has(&self, block: u64) -> bool {
        self.ticks.contains_key(&block)
    }

    fn push(&mut self, block: u64) {
        self.remove(block);
        self.now += 1;
        self.ticks.insert(block, self.now);
        self.order.insert(self.now, block);
    }

    fn remove(&mut self, block: u64) -> bool {
        let tick = self.ticks.remove(&block);
        tick.is_some_and(|tick| self.order.remove(&tick).is_some())
    }

    fn pop(&mut self) -> Option<u64> {
        let (_, block) = self.order.pop_first()?;
        self.ticks.remove(&block);
        Some(block)
    }
}

struct Lru {
    size: usize,
    list: List,
}

impl Cache for Lru {
    fn has(&self, block: u64) -> bool {
        self.list.has(block)
    }

    fn access(&mut self, block: u64) {
        self.list.push(block);
        if self.list.len() > self.size {
            self.list.pop();
        }
    }
}

/// Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003, figure 4.
#[derive(Default)]
struct Arc {
    size: usize,
    target: f64,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
}

impl Arc {
    fn replace(&mut self, from_b2: bool) {
        let t1 = self.t1.len() as f64;
        let is_over = t1 > self.target || (from_b2 && t1 >= self.target);
        let (from, to) = if self.t1.len() > 0 && is_over {
            (&mut self.t1, &mut self.b1)
        } else {
            (&mut self.t2, &mut self.b2)
        };
        if let Some(block) = from.pop() {
            to.push(block);
        }
    }

    fn make_room(&mut self) {
        let recent = self.t1.len() + self.b1.len();
        let all = recent + self.t2.len() + self.b2.len();
        if recent == self.size {
            if self.t1.len() < self.size {
                self.b1.pop();
                self.replace(false);
            } else {
                self.t1.pop();
            }
        } else if all >= self.size {
            if all == 2 * self.size {
                self.b2.pop();
            }
            self.replace(false);
        }
    }
}

impl Cache for Arc {
    fn has(&self, block: u64) -> bool {
        self.t1.has(block) || self.t2.has(block)
    }

    fn access(&mut self, block: u64) {
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.t1.remove(block) || self.t2.remove(block) {
            self.t2.push(block);
        } else if self.b1.has(block) {
            self.target = (self.target + (b2 / b1).max(1.0)).min(self.size as f64);
            self.replace(false);
            self.b1.remove(block);
            self.t2.push(block);
        } else if self.b2.has(block) {
            self.target = (self.target - (b1 / b2).max(1.0)).max(0.0);
            self.replace(true);
            self.b2.remove(block);
            self.t2.push(block);
        } else {
            self.make_room();
            self.t1.push(block);
        }
    }
}
