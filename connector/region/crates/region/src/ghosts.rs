//! Names of objects that were evicted, so that one that comes back soon is known for one that is used again.
//!
//! A ghost is one word in the words of one of the key's two sets: the list the object fell from, when, and 28 bits of the
//! key. So many, as a key that is taken for another costs that one its name: it comes back as used once, goes early, and
//! a chain is no use behind a hole. One name lost in 500 cost ARC half a point of hit rate on a trace of long chains.
//! The tick pays for it: 34 bits, read as an age. Full sets forget their oldest (two sets, as one alone is full far too
//! often), and a scan forgets what ARC's two bounds exclude (Megiddo and Modha, FAST 2003: both lists with
//! their ghosts hold twice what is live, the recent one what is live). Nothing here is relied on: a damaged word is a
//! name that nobody asks for.

use crate::core::{Core, Own};
use crate::digest::Digest;
use crate::header::Header;
use crate::layout::{Policy, WAYS};
use crate::memory::Memory;
use crate::victims::{Victims, keep_oldest};
use crate::words::List;
use std::cmp::{Ordering, Reverse};

/// What a ghost knows a key by: the parts of its digest that a header stores.
type Name = (u64, u64, u32);

/// tick, low bits 34 | present 1 | list 1 | print 28; 0 = none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ghost(u64);

impl Ghost {
    const TICK_BITS: u32 = 34;
    const TICK_MASK: u64 = (1 << Self::TICK_BITS) - 1;
    const PRESENT: u64 = 1 << Self::TICK_BITS;
    const LIST_AT: u32 = Self::TICK_BITS + 1;
    const PRINT_AT: u32 = Self::TICK_BITS + 2;

    const fn new(key: Name, list: List, tick: u64) -> Self {
        let named = Self::print(key) << Self::PRINT_AT | (list as u64) << Self::LIST_AT;
        Self(named | Self::PRESENT | tick & Self::TICK_MASK)
    }

    const fn print(key: Name) -> u64 {
        key.2 as u64 & (u64::MAX >> Self::PRINT_AT)
    }

    const fn list(self) -> Option<List> {
        if self.0 & Self::PRESENT == 0 {
            None
        } else if self.0 >> Self::LIST_AT & 1 == List::Frequent as u64 {
            Some(List::Frequent)
        } else {
            Some(List::Recent)
        }
    }

    /// Ticks since the eviction, modulo 2^34: a name that nobody asks for so long may look young again.
    const fn age(self, clock: u64) -> u64 {
        clock.wrapping_sub(self.0) & Self::TICK_MASK
    }

    /// What is given up first: no name, then the oldest.
    fn worth(self, clock: u64) -> Option<Reverse<u64>> {
        self.list().map(|_| Reverse(self.age(clock)))
    }

    const fn is_of(self, key: Name) -> bool {
        self.0 & Self::PRESENT != 0 && self.0 >> Self::PRINT_AT == Self::print(key)
    }
}

impl<M: Memory> Core<M> {
    /// Places where a name can be, by set.
    fn ghosts_of(&self, domain: u32, key: Name) -> [[u64; WAYS as usize]; 2] {
        let sets = u128::from(self.layout.geometry.sets);
        [key.0, key.1].map(|lane| {
            let set = (u128::from(lane) * sets) >> 64;
            let first = self.layout.ghost(domain, set as u32 * WAYS);
            std::array::from_fn(|way| first + 8 * way as u64)
        })
    }

    /// Remembers an object that was evicted from `list` at `tick`, in the emptier set, or in the place of the oldest name.
    pub(crate) fn remember(&self, own: &Own, header: &Header, list: List, tick: u64) {
        let key = (header.key_a, header.key_b, header.key_c);
        let places = self.ghosts_of(own.domain, key).map(|set| {
            let worths = set.map(|at| (Ghost(self.mem.load(at)).worth(tick), at));
            let free = worths.iter().filter(|(worth, _)| worth.is_none()).count();
            (free, worths)
        });
        let [(free, first), (free_too, second)] = places;
        let oldest = match free.cmp(&free_too) {
            Ordering::Greater => first.into_iter().min(),
            Ordering::Less => second.into_iter().min(),
            Ordering::Equal => first.into_iter().chain(second).min(),
        };
        if let Some((_, at)) = oldest {
            self.mem.store(at, Ghost::new(key, list, tick).0);
        }
    }

    /// Forgets the name of an object that comes back. True when there was one; the target of the adaptive arm then moves
    /// towards the list it had fallen from.
    pub(crate) fn recall(&self, own: &Own, digest: &Digest) -> bool {
        let key = (digest.a, digest.b, digest.c);
        let found = self
            .ghosts_of(own.domain, key)
            .into_iter()
            .flatten()
            .find_map(|at| {
                let ghost = Ghost(self.mem.load(at));
                let list = ghost.list().filter(|_| ghost.is_of(key))?;
                self.mem.cas(at, ghost.0, 0).ok().map(|_| list)
            });
        let Some(list) = found else { return false };
        let mut owner = self.owner();
        let victims = &mut owner.victims;
        let at = self.layout.policy(own.domain, Policy::Target);
        let live = victims.live.iter().sum();
        let target = Target(self.mem.load(at)).moved(live, victims.ghosts, list);
        self.mem.store(at, target.0);
        let count = &mut victims.ghosts[list as usize];
        *count = count.saturating_sub(1);
        true
    }

    /// Counts the names by list and forgets the oldest that are too many. For a scan: until the next one the names grow
    /// by what is evicted, so half a batch fewer than ARC's bounds are kept, and ARC's many on average.
    pub(crate) fn trim_ghosts(&self, own: &Own, victims: &mut Victims, most: usize) {
        let clock = self.clock(own.domain);
        let mut counts = [0_u64; 2];
        for index in 0..self.layout.headers() {
            let ghost = Ghost(self.mem.load(self.layout.ghost(own.domain, index)));
            if let Some(list) = ghost.list() {
                counts[list as usize] += 1;
                keep_oldest(
                    &mut victims.heaps[list as usize],
                    most,
                    (Ghost::TICK_MASK - ghost.age(clock), index),
                );
            }
        }
        let live: u64 = victims.live.iter().sum();
        let most_kept = live.saturating_sub(victims.batch as u64 / 2);
        let mut room = most_kept.saturating_sub(victims.live[List::Recent as usize]);
        for list in [List::Recent, List::Frequent] {
            let i = list as usize;
            let excess = counts[i].saturating_sub(room);
            let mut oldest = std::mem::take(&mut victims.heaps[i]);
            while oldest.len() as u64 > excess {
                oldest.pop();
            }
            victims.ghosts[i] = counts[i] - oldest.len() as u64;
            for (_, index) in oldest.drain() {
                self.mem.store(self.layout.ghost(own.domain, index), 0);
            }
            victims.heaps[i] = oldest;
            room = most_kept.saturating_sub(victims.ghosts[i]);
        }
    }
}

/// ARC's target as it is stored: how many objects used once are worth keeping, in 65536ths of one. 0 = no name was asked
/// for yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target(pub(crate) u64);

impl Target {
    const ONE: u64 = 1 << 16;
    /// Where nothing is known yet, this part of a cache is for objects used once. ARC as published begins with none of
    /// it, and a large cache learns long, as each name moves the target by little.
    const START_PART: u64 = 8;

    const fn parts(self, size: u64) -> u64 {
        let all = size.saturating_mul(Self::ONE);
        if self.0 == 0 {
            all / Self::START_PART
        } else if self.0 < all {
            self.0
        } else {
            all
        }
    }

    /// Objects, in a cache that holds `size`.
    pub(crate) const fn objects(self, size: u64) -> u64 {
        self.parts(size) / Self::ONE
    }

    /// ARC's adaptation, after a name of `list` was asked for. The quotient of the lists' names is no whole number: cut
    /// to one it moves the target too little, and to both sides not by the same part.
    pub(crate) fn moved(self, size: u64, ghosts: [u64; 2], list: List) -> Self {
        let parts = self.parts(size);
        let [recent, frequent] = ghosts.map(|n| n.max(1));
        let step = |of: u64, by: u64| (of.saturating_mul(Self::ONE) / by).max(Self::ONE);
        let moved = match list {
            List::Recent => parts.saturating_add(step(frequent, recent)),
            List::Frequent => parts.saturating_sub(step(recent, frequent)),
        };
        Self(moved.min(size.saturating_mul(Self::ONE)).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Recency;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_ghost_keeps_its_fields(c: u32, tick in 0..=Recency::TICK_MASK, frequent: bool) {
            let list = if frequent { List::Frequent } else { List::Recent };
            let ghost = Ghost::new((0, 0, c), list, tick);
            prop_assert_ne!(ghost.0, 0);
            prop_assert_eq!((ghost.list(), ghost.age(tick)), (Some(list), 0));
            prop_assert_eq!(ghost.age(tick + 5), 5);
            prop_assert!(ghost.is_of((0, 0, c)));
            prop_assert!(!ghost.is_of((0, 0, c ^ 1)));
            prop_assert!(!Ghost(0).is_of((0, 0, c)));
        }

        #[test]
        fn no_name_goes_before_an_old_one_and_that_before_a_young_one(clock in 9..=Recency::TICK_MASK, c: u32) {
            let worth = |tick| Ghost::new((0, 0, c), List::Recent, tick).worth(clock);
            prop_assert!(Ghost(0).worth(clock) < worth(clock - 9));
            prop_assert!(worth(clock - 9) < worth(clock - 1));
        }

        #[test]
        fn the_target_stays_between_nothing_and_all(
            word: u64, size: u64, recent: u64, frequent: u64,
        ) {
            let target = Target(word);
            let up = target.moved(size, [recent, frequent], List::Recent).objects(size);
            let down = target.moved(size, [recent, frequent], List::Frequent).objects(size);
            let here = target.objects(size);
            prop_assert!(down <= here && here <= up && up <= size);
        }
    }

    #[test]
    fn the_target_begins_with_an_eighth_and_stays_at_nothing_once_it_is_there() {
        assert_eq!(Target(0).objects(800), 100);
        let none = Target(1).moved(800, [1, 1], List::Frequent);
        assert_eq!(none.objects(800), 0);
        assert_eq!(none.moved(800, [1, 1], List::Frequent), none);
    }

    #[test]
    fn the_target_moves_by_parts_of_an_object() {
        let target = Target(0).moved(800, [2, 3], List::Recent);
        let target = target.moved(800, [2, 3], List::Recent);
        assert_eq!(target.objects(800), 103);
        let target = target.moved(800, [3, 2], List::Frequent);
        let target = target.moved(800, [3, 2], List::Frequent);
        assert_eq!(target, Target(100 << 16));
    }
}
