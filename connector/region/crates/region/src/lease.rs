//! Leases: own objects that are about to be read are not evicted meanwhile.
//!
//! A lease is advice with an end: its holder may die, and then time ends it. It lives in the progress word of the
//! object's header, which nobody needs once the object is published and which the next claim overwrites. Objects of
//! another domain are not ours to keep; their owner is told that they are used.
//!
//! | bits | |
//! |---|---|
//! | 0-31 | generation, low bits |
//! | 32-55 | when it ends, in seconds since the format, low bits |
//! | 56-62 | holders |
//! | 63 | 1 |

use crate::core::{Core, Place};
use crate::layout::LINE;
use crate::memory::Memory;
use crate::words::{HeaderWord, State};

/// Longest lease, in seconds.
pub const LEASE_MAX: u32 = 600;

const FLAG: u64 = 1 << 63;
const END_BITS: u32 = 24;
const END_MASK: u32 = (1 << END_BITS) - 1;
const HOLDERS_MAX: u32 = 127;

const _: () = assert!(LINE == 64 && LEASE_MAX < END_MASK / 2);

/// The word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease(u64);

impl Lease {
    const fn new(generation: u64, end: u32, holders: u32) -> Self {
        Self(
            FLAG | generation & 0xFFFF_FFFF
                | ((end & END_MASK) as u64) << 32
                | (holders as u64) << (32 + END_BITS),
        )
    }

    /// Seconds left and holders; none when it is no lease of this generation, or has ended.
    const fn left(self, generation: u64, now: u32) -> (u32, u32) {
        let left = ((self.0 >> 32) as u32).wrapping_sub(now) & END_MASK;
        let mine = self.0 & FLAG != 0 && self.0 & 0xFFFF_FFFF == generation & 0xFFFF_FFFF;
        if mine && left > 0 && left <= LEASE_MAX {
            (left, (self.0 >> (32 + END_BITS)) as u32 & HOLDERS_MAX)
        } else {
            (0, 0)
        }
    }
}

impl<M: Memory> Core<M> {
    /// Keeps an object for `seconds` (at most [`LEASE_MAX`]) or until it is released as often as it was leased. False
    /// when it is not there any more, or another domain's: that one only counts as used.
    pub fn lease(&self, place: Place, seconds: u32) -> bool {
        self.used(place);
        let seconds = seconds.min(LEASE_MAX);
        self.change_lease(place, |left, holders| {
            (left.max(seconds), (holders + 1).min(HOLDERS_MAX))
        })
    }

    /// Gives one lease of an object back.
    pub fn release_lease(&self, place: Place) {
        self.change_lease(place, |left, holders| match holders {
            0 | 1 => (0, 0),
            more => (left, more - 1),
        });
    }

    fn change_lease(&self, place: Place, change: impl Fn(u32, u32) -> (u32, u32)) -> bool {
        let is_own = self.own.as_ref().map(|own| own.domain) == Some(place.domain);
        if !is_own || !self.is_place(place) {
            return false;
        }
        let at = self.layout.progress(place.domain, place.header);
        let mut found = self.mem.load(at);
        // Published before this load, so the word is not a writer's any more. One that reuses the header meanwhile has
        // stored another word, and the swap fails.
        while self.stands(place) {
            let now = self.age_seconds();
            let (left, holders) = Lease(found).left(place.generation, now);
            let (left, holders) = change(left, holders);
            let next = Lease::new(place.generation, now.wrapping_add(left), holders);
            match self.mem.cas(at, found, next.0) {
                Ok(_) => return true,
                Err(other) => found = other,
            }
        }
        false
    }

    fn stands(&self, place: Place) -> bool {
        let word = HeaderWord(
            self.mem
                .load(self.layout.header(place.domain, place.header)),
        );
        word.generation() == place.generation && (word.is(State::Valid) || word.is(State::Retired))
    }

    /// True when somebody keeps the object that an own header has now.
    pub(crate) fn is_kept(&self, domain: u32, header: u32) -> bool {
        if self.mem.load(self.layout.progress(domain, header)) & FLAG == 0 {
            return false; // nearly always, and the header's line is not asked for
        }
        let word = HeaderWord(self.mem.load(self.layout.header(domain, header)));
        self.is_leased(domain, header, word.generation())
    }

    /// True when somebody keeps the object of an own header.
    pub(crate) fn is_leased(&self, domain: u32, header: u32, generation: u64) -> bool {
        let word = Lease(self.mem.load(self.layout.progress(domain, header)));
        word.0 & FLAG != 0 && word.left(generation, self.age_seconds()).0 > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lease_ends_when_it_says(
            generation in 0_u64..1 << 48, now: u32, seconds in 1..=LEASE_MAX, holders in 1_u32..=127, later in 0_u32..2000,
        ) {
            let lease = Lease::new(generation, now.wrapping_add(seconds), holders);
            let left = lease.left(generation, now.wrapping_add(later));
            prop_assert_eq!(left, if later < seconds { (seconds - later, holders) } else { (0, 0) });
            prop_assert_eq!(lease.left(generation + 1, now), (0, 0));
        }

        #[test]
        fn a_word_of_a_write_is_no_lease(word in 0_u64..1 << 63, generation: u64, now: u32) {
            prop_assert_eq!(Lease(word).left(generation, now), (0, 0));
        }
    }
}
