//! Uses of other domains' objects: gathered in the reader, told by its touch ring, taken by the owner's evictor.
//!
//! Only the owner stores into a domain, so a reader cannot mark what it used. Requests only remember it; the janitor puts
//! up to six uses into one entry of its own domain's touch ring, oldest first, each object once. Processes of the owner
//! read the touch rings of all other domains before they look for victims; where the domain stands in each ring is a
//! word of its own block, so that a use is applied once.
//!
//! | bits of a use | |
//! |---|---|
//! | 0-27 | generation, low bits |
//! | 28-55 | header |
//! | 56-62 | domain |
//! | 63 | 1 |

use crate::core::{Core, Own, Place};
use crate::layout::Ring;
use crate::memory::{Memory, Step};
use crate::ring::{BODY_WORDS, Body, Cursor};
use crate::stats::Event;
use crate::words::{HeaderWord, State};
use std::collections::HashSet;

const GENERATION_BITS: u32 = 28;
const HEADER_BITS: u32 = 28;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;
/// Uses that are remembered between two looks of the janitor; more are forgotten, and counted.
const WAITING_MAX: usize = 16_384;
/// Entries of one ring that are taken in one go.
const DRAIN_MAX: usize = 4096;

/// A use as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use(pub u64);

impl Use {
    /// Packs the place of the object.
    pub const fn new(place: Place) -> Self {
        Self(
            1 << 63
                | (place.domain as u64) << (GENERATION_BITS + HEADER_BITS)
                | (place.header as u64) << GENERATION_BITS
                | place.generation & GENERATION_MASK,
        )
    }

    /// The object's header, when the use is of this domain.
    const fn header(self, domain: u32) -> Option<u32> {
        if self.0 >> (GENERATION_BITS + HEADER_BITS) == 1 << 7 | domain as u64 {
            Some((self.0 >> GENERATION_BITS) as u32 & ((1 << HEADER_BITS) - 1))
        } else {
            None
        }
    }

    const fn is_of(self, generation: u64) -> bool {
        self.0 & GENERATION_MASK == generation & GENERATION_MASK
    }
}

/// Uses that wait to be told, in their order.
#[derive(Default)]
pub(crate) struct Touches(Vec<Use>);

/// The last `most` uses, each object once, at its last place.
fn newest(uses: &[Use], most: usize) -> Vec<Use> {
    let mut seen = HashSet::with_capacity(uses.len().min(most));
    let news = uses.iter().rev().filter(|one| seen.insert(one.0));
    let mut kept: Vec<Use> = news.take(most).copied().collect();
    kept.reverse();
    kept
}

impl<M: Memory> Core<M> {
    /// Remembers that `places` were used, the last one most recently, until [`Core::send_touches`] tells their owners.
    /// Places in the own domain are passed over.
    pub(crate) fn tell_used(&self, places: impl Iterator<Item = Place>) {
        let Some(own) = &self.own else { return };
        let uses = places
            .filter(|place| place.domain != own.domain)
            .map(Use::new);
        let mut waiting = self.touches();
        for one in uses {
            if waiting.0.len() == WAITING_MAX {
                self.stats.add(Event::TouchesDropped, 1);
            } else {
                waiting.0.push(one);
            }
        }
    }

    /// Tells the owners what this process used of theirs since the last call. For a janitor.
    pub fn send_touches(&self, own: &Own) {
        let waiting = std::mem::take(&mut *self.touches());
        if waiting.0.is_empty() || !self.mem.is_intact() {
            return;
        }
        // No more than half a ring, or the first would be gone before an owner looks.
        let entries = (self.layout.ring_entries(Ring::Touch) / 2).max(1);
        let uses = newest(&waiting.0, entries as usize * BODY_WORDS);
        for uses in uses.chunks(BODY_WORDS) {
            let mut body = Body::default();
            for (word, one) in body.iter_mut().zip(uses) {
                *word = one.0;
            }
            self.push(own, Ring::Touch, &body);
        }
        self.mem.store_fence(Step::RingFence);
        self.stats.add(Event::TouchesSent, uses.len() as u64);
    }

    /// Marks what other domains' processes used of the own domain's objects. Returns how many.
    ///
    /// For whoever is about to choose victims, and for a janitor. Any number of processes may run it at once: the one
    /// that moves the domain's cursor applies what it read.
    pub fn drain_touches(&self, own: &Own) -> u64 {
        let mut taken = 0;
        let mut uses = Vec::new();
        for of in (0..self.layout.geometry.domains).filter(|&domain| domain != own.domain) {
            let at = self.layout.touch_cursor(own.domain, of);
            let start = self.mem.load(at);
            let mut cursor = Cursor::hasty(start);
            uses.clear();
            self.poll(of, Ring::Touch, &mut cursor, DRAIN_MAX, |_, body| {
                let ours = |one: &Use| one.header(own.domain).is_some();
                uses.extend(body.map(Use).into_iter().filter(ours));
            });
            if cursor.next != start && self.mem.cas(at, start, cursor.next).is_ok() {
                taken += self.apply(own, &uses);
            }
        }
        self.stats.add(Event::TouchesTaken, taken);
        taken
    }

    fn apply(&self, own: &Own, uses: &[Use]) -> u64 {
        if uses.is_empty() {
            return 0;
        }
        let first = self.ticks(own.domain, uses.len() as u64);
        let mut applied = 0;
        for (tick, one) in (first..).zip(uses) {
            let header = one.header(own.domain).unwrap_or(u32::MAX);
            if header >= self.layout.headers() {
                continue;
            }
            let word = HeaderWord(self.mem.load(self.layout.header(own.domain, header)));
            if word.is(State::Valid) && one.is_of(word.generation()) {
                let place = Place {
                    domain: own.domain,
                    header,
                    generation: word.generation(),
                };
                self.touch(place, tick);
                applied += 1;
            }
        }
        applied
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{DOMAINS_MAX, HEADERS_MAX};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_use_names_its_object(
            domain in 0..DOMAINS_MAX, header in 0..HEADERS_MAX as u32, generation in 0_u64..1 << 48,
            other in 0..DOMAINS_MAX, later in 1_u64..1 << 27,
        ) {
            let one = Use::new(Place { domain, header, generation });
            prop_assert_ne!(one.0, 0);
            prop_assert_eq!(one.header(other), (other == domain).then_some(header));
            prop_assert!(one.is_of(generation));
            prop_assert!(!one.is_of(generation + later));
        }

        #[test]
        fn any_word_is_read_without_panic(bits: u64, domain in 0..DOMAINS_MAX) {
            let _ = (Use(bits).header(domain), Use(bits).is_of(bits));
        }
    }

    #[test]
    fn a_use_is_told_once_and_the_newest_survive() {
        let uses = [1, 2, 3, 1, 4].map(Use);
        assert_eq!(newest(&uses, 9), [2, 3, 1, 4].map(Use));
        assert_eq!(newest(&uses, 2), [1, 4].map(Use));
        assert_eq!(newest(&[], 2), []);
    }
}
