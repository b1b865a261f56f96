//! Marking what is used: recency words, and the ticks that keep the tail of a chain older than its head.

use crate::core::{Core, Own, Place};
use crate::digest::Digest;
use crate::layout::Counter;
use crate::memory::Memory;
use crate::words::{Class, HeaderWord, Recency};
use std::sync::atomic::{AtomicU64, Ordering};

/// Ticks taken at once for puts that no lookup came before.
const DESCENT: u64 = 64;
/// A use is passed over when this part of all headers was not used since; four times that, and a descent is left.
const FRESH_PART: u64 = 8;

/// Ticks of a chain that is being stored, from its head down: next tick 48 bits, how many are left 16.
#[derive(Default)]
pub(crate) struct Descent(AtomicU64);

impl Descent {
    const LEFT_BITS: u32 = 16;

    const fn pack(next: u64, left: u64) -> u64 {
        let left = if left >> Self::LEFT_BITS == 0 {
            left
        } else {
            0xFFFF
        };
        next << Self::LEFT_BITS | left
    }

    /// The ticks `next`, `next - 1`, ... belong to the puts that follow.
    pub(crate) fn set(&self, next: u64, left: u64) {
        self.0.store(Self::pack(next, left), Ordering::Relaxed);
    }

    /// The next tick, unless `clock` has left it behind by more than `window`.
    fn take(&self, clock: u64, window: u64) -> Option<u64> {
        let word = self.0.load(Ordering::Relaxed);
        let (next, left) = (word >> Self::LEFT_BITS, word & 0xFFFF);
        if left == 0 || clock.wrapping_sub(next) & Recency::TICK_MASK > window {
            return None;
        }
        let rest = Self::pack(next.wrapping_sub(1) & Recency::TICK_MASK, left - 1);
        let taken = self
            .0
            .compare_exchange(word, rest, Ordering::Relaxed, Ordering::Relaxed);
        taken.ok().map(|_| next)
    }
}

impl<M: Memory> Core<M> {
    /// Ticks that may pass before a use is news.
    fn window(&self) -> u64 {
        u64::from(self.layout.headers()) / FRESH_PART
    }

    pub(crate) fn clock(&self, domain: u32) -> u64 {
        self.mem.load(self.layout.counter(domain, Counter::Clock)) & Recency::TICK_MASK
    }

    /// Tick of a put. Puts follow one another down their chain, so each is older than the one before.
    pub(crate) fn put_tick(&self, own: &Own) -> u64 {
        let window = 4 * self.window() + DESCENT;
        let next = self.descent.take(self.clock(own.domain), window);
        next.unwrap_or_else(|| {
            let last = self.ticks(own.domain, DESCENT).wrapping_add(DESCENT - 1);
            self.descent.set(last.wrapping_sub(1), DESCENT - 1);
            last
        })
    }

    /// Marks an object of the own domain as used again.
    #[inline]
    pub(crate) fn mark_used(&self, own: &Own, header: u32, tick: u64) {
        let at = self.layout.recency(own.domain, header);
        let old = Recency(self.mem.load(at));
        if old.is(Class::Retired) || old.is(Class::Claimed) || old.is(Class::Recalled) {
            return; // gone or replaced since it was found
        }
        self.mem.store(at, Recency::new(Class::Frequent, tick).0);
        if old.is(Class::Live) {
            self.count_recent(own, -1);
        }
        let line = self.layout.header(own.domain, header);
        let b = self.mem.load(line + 16);
        if Self::is_sampled(b) {
            self.replay(own, b, self.mem.load(line + 24) as u32, tick);
        }
    }

    /// True when another mark would say nothing new: a read that follows the lookup of its chain, say, which must not
    /// put the chain's tail before its head.
    pub(crate) fn is_fresh(&self, own: &Own, place: Place) -> bool {
        let word = Recency(
            self.mem
                .load(self.layout.recency(place.domain, place.header)),
        );
        let age = self.clock(own.domain).wrapping_sub(word.tick()) & Recency::TICK_MASK;
        place.domain == own.domain && word.is(Class::Frequent) && age < self.window()
    }

    /// Marks a header that was just claimed for `key`: on which list its object will be, and with which tick.
    pub(crate) fn mark_claimed(&self, own: &Own, header: u32, key: &Digest, recalled: bool) {
        let tick = self.put_tick(own);
        let class = if recalled {
            Class::Recalled
        } else {
            Class::Claimed
        };
        let at = self.layout.recency(own.domain, header);
        self.mem.store(at, Recency::new(class, tick).0);
        if Self::is_sampled(key.b) {
            self.replay(own, key.b, key.c, tick);
        }
    }

    /// Puts the object of a claimed header on its list: a later copy at the end that goes first.
    pub(crate) fn mark_stored(&self, own: &Own, header: u32) {
        let at = self.layout.recency(own.domain, header);
        let claimed = Recency(self.mem.load(at));
        let recency = if self.original(own, header).is_some() {
            self.count_recent(own, 1);
            Recency::COPY
        } else if claimed.is(Class::Recalled) {
            Recency::new(Class::Frequent, claimed.tick())
        } else {
            self.count_recent(own, 1);
            let is_sound = claimed.is(Class::Claimed);
            let tick = if is_sound { claimed.tick() } else { 0 };
            Recency::new(Class::Live, tick)
        };
        self.mem.store(at, recency.0);
    }

    /// Marks a header that was retired at `tick`, unless it let go of its object since, which `retired` tells: then the
    /// word is the next object's.
    pub(crate) fn mark_retired(&self, own: &Own, header: u32, retired: HeaderWord, tick: u64) {
        let at = self.layout.recency(own.domain, header);
        let mut old = Recency(self.mem.load(at));
        // Loaded before this look, so the word is not the next object's; a use that came between swapped it.
        while self.mem.load(self.layout.header(own.domain, header)) == retired.0 {
            let left = Recency::new(Class::Retired, tick);
            match self.mem.cas(at, old.0, left.0) {
                Ok(_) => return self.count_left(own, old),
                Err(found) => old = Recency(found),
            }
        }
    }

    /// Clears the recency word of a header that leaves, which is this process's alone.
    pub(crate) fn mark_left(&self, own: &Own, header: u32) {
        let at = self.layout.recency(own.domain, header);
        let old = Recency(self.mem.load(at));
        self.mem.store(at, 0);
        self.count_left(own, old);
    }

    fn count_left(&self, own: &Own, old: Recency) {
        if old.is(Class::Live) {
            self.count_recent(own, -1);
        }
    }

    fn count_recent(&self, own: &Own, n: i64) {
        let at = self.layout.counter(own.domain, Counter::Recent);
        self.mem.add(at, n.cast_unsigned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descent_goes_down_until_it_is_used_up_or_left_behind() {
        let descent = Descent::default();
        assert_eq!(descent.take(9, 100), None);
        descent.set(9, 2);
        assert_eq!(descent.take(9, 100), Some(9));
        assert_eq!(descent.take(109, 100), None);
        assert_eq!(descent.take(108, 100), Some(8));
        assert_eq!(descent.take(108, 100), None);
    }

    #[test]
    fn a_long_descent_is_cut() {
        let descent = Descent::default();
        descent.set(1 << 20, 1 << 20);
        assert_eq!(descent.take(1 << 20, 0), Some(1 << 20));
        assert_eq!(descent.0.load(Ordering::Relaxed) & 0xFFFF, 0xFFFE);
    }
}
