//! Which object goes next: the oldest of one of two lists, taken from a batch that one scan of the recency words collects.
//!
//! Live objects are on two lists, used once and used again. Two arms choose between their oldest members: LRU takes the
//! older one, ARC the one whose list is longer than its target. Which arm leads is decided by a duel ([`crate::duel`]).
//! There is no linked list: a scan finds the oldest of both lists, and who was used since is passed over. Everything is a
//! hint, the batch private to the process, the words shared and mended here: a damaged word makes an object old.

use crate::core::{Core, Own};
use crate::duel::Arm;
use crate::evict::Owner;
use crate::ghosts::Target;
use crate::layout::{Counter, Layout, Policy};
use crate::memory::Memory;
use crate::words::{Class, HeaderWord, List, Recency, State};
use std::collections::BinaryHeap;

/// A scan collects this part of all headers as the next victims, of each list.
const BATCH_PART: usize = 32;
/// See [`Victims::patience`]: what a scan costs is shared by at least this part of a batch.
const PATIENCE_PART: usize = 16;

/// The oldest objects of both lists as of the last scan.
pub(crate) struct Victims {
    /// Youngest first: taken from the back.
    lists: [Vec<(u64, u32)>; 2],
    /// The scan put every member of the list into the batch.
    is_whole: [bool; 2],
    /// How many a scan collects of each list at most.
    pub(crate) batch: usize,
    /// Victims since the last scan.
    taken: usize,
    /// So many are taken before a list that a scan emptied is scanned for again.
    patience: usize,
    /// Empty between scans; kept for their memory.
    pub(crate) heaps: [BinaryHeap<(u64, u32)>; 2],
    /// Live objects by list, as of the last scan.
    pub(crate) live: [u64; 2],
    /// Ghosts by list, as of the last scan, and what this process saw come and go since.
    pub(crate) ghosts: [u64; 2],
}

impl Victims {
    pub(crate) fn new(layout: &Layout) -> Self {
        let batch = batch(layout);
        Self {
            lists: [Vec::with_capacity(batch), Vec::with_capacity(batch)],
            is_whole: [false; 2],
            batch,
            taken: 0,
            patience: batch / PATIENCE_PART + 1,
            heaps: [
                BinaryHeap::with_capacity(batch),
                BinaryHeap::with_capacity(batch),
            ],
            live: [0; 2],
            ghosts: [0; 2],
        }
    }

    /// Takes the next victim; `None` asks for a scan. After a scan any victim will do.
    fn pick(&mut self, arm: Arm, too_many_recent: bool, scanned: bool) -> Option<(u64, u32, List)> {
        let [recent, frequent] = [self.lists[0].last(), self.lists[1].last()];
        // Of an empty list nothing is known: it is asked first, so that it is scanned for unless it was whole.
        let from_recent = match (arm, recent, frequent) {
            (Arm::Adaptive, ..) => too_many_recent,
            (Arm::Lru, Some(recent), Some(frequent)) => recent < frequent,
            (Arm::Lru, ..) => recent.is_none(),
        };
        let (from, other) = if from_recent {
            (List::Recent, List::Frequent)
        } else {
            (List::Frequent, List::Recent)
        };
        // What came to a whole list since the scan is missing there. It is younger than all that is left of the other
        // list, but ARC may want it to go first.
        let is_known = scanned || (self.is_whole[from as usize] && self.taken < self.patience);
        let list = if self.lists[from as usize].is_empty() && is_known {
            other
        } else {
            from
        };
        let (tick, header) = self.lists[list as usize].pop()?;
        self.taken += 1;
        Some((tick, header, list))
    }
}

fn batch(layout: &Layout) -> usize {
    layout.headers() as usize / BATCH_PART + 1
}

/// Pushes to a heap that keeps the `most` smallest.
pub(crate) fn keep_oldest(heap: &mut BinaryHeap<(u64, u32)>, most: usize, item: (u64, u32)) {
    if heap.len() < most {
        heap.push(item);
    } else if let Some(mut youngest) = heap.peek_mut()
        && item < *youngest
    {
        *youngest = item;
    }
}

impl<M: Memory> Core<M> {
    /// The next victim: its tick, header and list. `None` when a scan is needed and `scanned` says that there was one.
    pub(crate) fn next_victim(
        &self,
        own: &Own,
        owner: &mut Owner,
        scanned: &mut bool,
    ) -> Option<(u64, u32, List)> {
        let domain = own.domain;
        loop {
            for list in [List::Recent, List::Frequent] {
                let batch = &mut owner.victims.lists[list as usize];
                while let Some(&(tick, header)) = batch.last()
                    && self.mem.load(self.layout.recency(domain, header))
                        != Recency::new(list.class(), tick).0
                {
                    batch.pop(); // used, retired or replaced since the scan
                }
            }
            let recent = self.mem.load(self.layout.counter(domain, Counter::Recent));
            let target = Target(self.mem.load(self.layout.policy(domain, Policy::Target)));
            let target = target.objects(owner.victims.live.iter().sum());
            let too_many = recent.cast_signed() > target.cast_signed();
            let victim = owner.victims.pick(self.leader(own), too_many, *scanned);
            if victim.is_some() || *scanned {
                return victim;
            }
            self.scan(own, owner);
            *scanned = true;
        }
    }

    /// One pass over the recency words and one over the ghosts: the oldest live headers become the next victims, the
    /// retired ones the queue.
    fn scan(&self, own: &Own, owner: &mut Owner) {
        self.drain_touches(own);
        let batch = owner.victims.batch;
        let clock = self
            .mem
            .load(self.layout.counter(own.domain, Counter::Clock))
            & Recency::TICK_MASK;
        owner.forget_retired();
        owner.victims.live = [0; 2];
        let mut kept = [0; 2];
        for header in 0..self.layout.headers() {
            let at = self.layout.recency(own.domain, header);
            let word = Recency(self.mem.load(at));
            if let Some(list) = word.list() {
                let mut tick = word.tick();
                if tick > clock || !word.is(list.class()) {
                    tick = 0; // damage
                    let mended = Recency::new(list.class(), tick);
                    let _ = self.mem.cas(at, word.0, mended.0);
                }
                owner.victims.live[list as usize] += 1;
                if self.is_kept(own.domain, header) {
                    kept[list as usize] += 1; // in the batch, many leases would leave no room for a victim
                    continue;
                }
                keep_oldest(
                    &mut owner.victims.heaps[list as usize],
                    batch,
                    (tick, header),
                );
            } else if word.is(Class::Retired) {
                let slots = self.slots_of(own.domain, header);
                owner.queue_retired(word.tick(), header, slots);
            }
        }
        owner.sort_retired();
        let victims = &mut owner.victims;
        for i in [0, 1] {
            victims.lists[i].clear();
            victims.lists[i].extend(victims.heaps[i].drain());
            victims.lists[i].sort_unstable_by(|a, b| b.cmp(a));
            victims.is_whole[i] = victims.lists[i].len() as u64 + kept[i] == victims.live[i];
        }
        victims.taken = 0;
        self.mem.store(
            self.layout.counter(own.domain, Counter::Recent),
            victims.live[0],
        );
        self.trim_ghosts(own, victims, 2 * batch);
    }

    /// Makes objects old whose recency word does not say that they live, so that they can be evicted. Returns how many.
    pub(crate) fn mend_recency(&self, own: &Own) -> u64 {
        let mut mended = 0;
        for header in 0..self.layout.headers() {
            let at = self.layout.recency(own.domain, header);
            let recency = Recency(self.mem.load(at));
            let word = HeaderWord(self.mem.load(self.layout.header(own.domain, header)));
            let class = match word.state() {
                Some(State::Valid) if recency.list().is_none() => Class::Live,
                Some(State::Retired) if !recency.is(Class::Retired) => Class::Retired,
                _ => continue,
            };
            // A word that changed meanwhile is someone's who knows better.
            let old = Recency::new(class, 0);
            mended += u64::from(self.mem.cas(at, recency.0, old.0).is_ok());
        }
        mended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn victims(recent: &[u64], frequent: &[u64], is_whole: [bool; 2]) -> Victims {
        let list = |ticks: &[u64]| ticks.iter().rev().map(|&t| (t, t as u32)).collect();
        Victims {
            lists: [list(recent), list(frequent)],
            is_whole,
            batch: 8,
            taken: 0,
            patience: 4,
            heaps: [BinaryHeap::new(), BinaryHeap::new()],
            live: [0; 2],
            ghosts: [0; 2],
        }
    }

    #[test]
    fn lru_takes_the_older_of_both_lists() {
        let mut v = victims(&[2, 5], &[3, 4], [true; 2]);
        let ticks: Vec<_> = std::iter::from_fn(|| v.pick(Arm::Lru, true, false)).collect();
        assert_eq!(ticks.iter().map(|t| t.0).collect::<Vec<_>>(), [2, 3, 4, 5]);
    }

    #[test]
    fn the_adaptive_arm_takes_from_the_list_that_is_too_long() {
        let mut v = victims(&[9], &[3], [true; 2]);
        assert_eq!(
            v.pick(Arm::Adaptive, true, false),
            Some((9, 9, List::Recent))
        );
        assert_eq!(
            v.pick(Arm::Adaptive, true, false),
            Some((3, 3, List::Frequent))
        );
        assert_eq!(v.pick(Arm::Adaptive, true, false), None);
    }

    #[test]
    fn a_whole_list_that_ran_out_is_scanned_for_again_after_a_while() {
        let mut v = victims(&[], &[1, 2, 3, 4, 5], [true; 2]);
        let taken = std::iter::from_fn(|| v.pick(Arm::Adaptive, true, false)).count();
        assert_eq!(taken, v.patience);
    }

    #[test]
    fn a_batch_that_was_cut_is_not_passed_over_for_the_other_list() {
        let mut v = victims(&[], &[3], [false; 2]);
        assert_eq!(v.pick(Arm::Lru, true, false), None);
        assert_eq!(v.pick(Arm::Adaptive, true, false), None);
        assert_eq!(v.pick(Arm::Lru, true, true), Some((3, 3, List::Frequent)));
    }
}
