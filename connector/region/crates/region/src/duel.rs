//! The duel of the two arms: uses of one key in sixteen are replayed on two shadow directories, and the arm whose shadow
//! hits more leads.
//!
//! One shadow is an LRU cache of a sixteenth of the live objects, the other an ARC cache of the same size with its
//! ghosts. An entry is two words, as both shadows mostly hold the same keys:
//!
//! | word | bits, low to high |
//! |---|---|
//! | LRU | tick of the last use 48 (0 = not there), print of the key 16 (0 = entry is free) |
//! | ARC | tick of the last use or of the eviction 48, place 16: 1 = used once, 2 = used again, 3 and 4 = their ghosts |
//!
//! Uses only set words; whoever needs room trims both shadows to size now and then. Words race and may be damaged: a
//! wrong one costs a wrong verdict for a while, never more.

use crate::core::{Core, Own};
use crate::ghosts::Target;
use crate::layout::{Counter, Policy, SHADOW_WAYS};
use crate::memory::Memory;
use crate::victims::Victims;
use crate::words::{List, Recency};

/// One key in so many is replayed.
const SAMPLE: u64 = 16;
/// The shadows are trimmed when this part of them is new.
const TRIM_PART: u64 = 32;
/// The other arm leads once it is ahead by this many hits. A chain brings several at once, so a few mean little: at 24 the
/// sample of one region in four gave ARC's lead away on a trace where ARC is better by far.
const LEAD: i8 = 32;
/// More hits than this are not remembered.
const SCORE_MAX: i8 = 40;

const IN_RECENT: u64 = 1;
const IN_FREQUENT: u64 = 2;
const WAS_RECENT: u64 = 3;
const WAS_FREQUENT: u64 = 4;

/// How victims are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The least recently used.
    Lru,
    /// ARC: the oldest of the list that is longer than its target.
    Adaptive,
}

/// Word of the duel: hits that the adaptive arm is ahead 8, LRU leads 1. It begins with the adaptive arm: where that is
/// wrong it soon shows, while LRU at its worst loses to it by little at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Score(u64);

impl Score {
    const LRU: u64 = 1 << 8;

    const fn leader(self) -> Arm {
        if self.0 & Self::LRU == 0 {
            Arm::Adaptive
        } else {
            Arm::Lru
        }
    }

    /// After a use that one of the arms would have hit and the other not.
    fn with(self, winner: Arm) -> Self {
        let step = if winner == Arm::Adaptive { 1 } else { -1 };
        let ahead = (self.0 as u8).cast_signed();
        let ahead = ahead.saturating_add(step).clamp(-SCORE_MAX, SCORE_MAX);
        let leader = match ahead {
            LEAD.. => 0,
            n if n <= -LEAD => Self::LRU,
            _ => self.0 & Self::LRU,
        };
        Self(u64::from(ahead.cast_unsigned()) | leader)
    }
}

/// Both words of an entry.
#[derive(Clone, Copy, Default)]
struct Shadow {
    lru: u64,
    arc: u64,
}

impl Shadow {
    const fn is_of(self, print: u64) -> bool {
        self.lru >> 48 == print
    }

    const fn is_in_lru(self) -> bool {
        self.lru & Recency::TICK_MASK != 0
    }

    const fn place(self) -> u64 {
        self.arc >> 48
    }

    const fn is_in_arc(self) -> bool {
        matches!(self.place(), IN_RECENT | IN_FREQUENT)
    }

    /// What is given up first: nothing, then ghosts, then what one shadow holds; the oldest of equals.
    fn worth(self) -> (u8, u64) {
        let held = u8::from(self.is_in_lru()) + u8::from(self.is_in_arc());
        let ghost = matches!(self.place(), WAS_RECENT | WAS_FREQUENT);
        let tick = (self.lru & Recency::TICK_MASK).max(self.arc & Recency::TICK_MASK);
        (2 * held + u8::from(ghost), tick)
    }
}

const fn pack(high: u64, tick: u64) -> u64 {
    high << 48 | tick & Recency::TICK_MASK
}

/// Entries by what they are in: tick and index.
type Column = Vec<(u64, u32)>;

/// Splits the oldest off a column until `most` are left.
fn oldest(column: &mut Column, most: u64) -> Column {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    column.sort_unstable_by(|a, b| b.cmp(a));
    column.split_off(most.min(column.len()))
}

impl<M: Memory> Core<M> {
    /// The arm that chooses victims.
    pub(crate) fn leader(&self, own: &Own) -> Arm {
        Score(self.mem.load(self.layout.policy(own.domain, Policy::Duel))).leader()
    }

    /// True for the keys whose uses are replayed: `b` is the second lane of the digest.
    pub(crate) const fn is_sampled(b: u64) -> bool {
        b.is_multiple_of(SAMPLE)
    }

    /// Replays a use of a sampled key on both shadows.
    #[cold]
    pub(crate) fn replay(&self, own: &Own, b: u64, c: u32, tick: u64) {
        let set = (u64::from(c) * u64::from(self.layout.shadow_sets())) >> 32;
        let first = set as u32 * SHADOW_WAYS as u32;
        let print = 1 << 15 | (b / SAMPLE) & 0x7FFF;
        let places = (0..SHADOW_WAYS as u32).map(|way| self.layout.shadow(own.domain, first + way));
        let entries = places.map(|at| (at, self.shadow_at(at)));
        let known = entries.clone().find(|(_, entry)| entry.is_of(print));
        let place = known.or_else(|| {
            let victim = entries.min_by_key(|(_, entry)| entry.worth());
            victim.map(|(at, _)| (at, Shadow::default()))
        });
        let Some((at, old)) = place else { return };
        if old.is_in_arc() != old.is_in_lru() {
            let duel = self.layout.policy(own.domain, Policy::Duel);
            let score = self.mem.load(duel);
            let winner = if old.is_in_arc() {
                Arm::Adaptive
            } else {
                Arm::Lru
            };
            self.mem.store(duel, Score(score).with(winner).0);
        }
        let list = match old.place() {
            WAS_RECENT => Some(List::Recent),
            WAS_FREQUENT => Some(List::Frequent),
            _ => None,
        };
        if let Some(list) = list {
            self.move_shadow_target(own, list);
        }
        if !old.is_in_arc() || !old.is_in_lru() {
            self.mem
                .add(self.layout.policy(own.domain, Policy::Admitted), 1);
        }
        let again = old.is_in_arc() || list.is_some();
        let class = if again { IN_FREQUENT } else { IN_RECENT };
        self.mem.store(at, pack(print, tick.max(1)));
        self.mem.store(at + 8, pack(class, tick));
    }

    fn shadow_at(&self, at: u64) -> Shadow {
        Shadow {
            lru: self.mem.load(at),
            arc: self.mem.load(at + 8),
        }
    }

    fn move_shadow_target(&self, own: &Own, list: List) {
        let at = self.layout.policy(own.domain, Policy::ShadowTarget);
        let ghosts = self
            .mem
            .load(self.layout.policy(own.domain, Policy::ShadowGhosts));
        let ghosts = [ghosts & 0xFFFF_FFFF, ghosts >> 32];
        let most = u64::from(self.layout.headers()) / SAMPLE; // a trim cuts it to what is live
        let target = Target(self.mem.load(at)).moved(most, ghosts, list);
        self.mem.store(at, target.0);
    }

    /// Cuts both shadows to a sixteenth of the live objects once they have grown. For whoever makes room.
    pub(crate) fn trim_shadows(&self, own: &Own, victims: &Victims) {
        let size = victims.live.iter().sum::<u64>() / SAMPLE;
        let admitted = self.layout.policy(own.domain, Policy::Admitted);
        if size == 0 || self.mem.load(admitted) < (size / TRIM_PART).max(1) {
            return;
        }
        self.mem.store(admitted, 0);
        // Between two trims they grow: half of that below the size before it, half above after it.
        let size = size - size / TRIM_PART / 2;
        let clock = self
            .mem
            .load(self.layout.counter(own.domain, Counter::Clock))
            & Recency::TICK_MASK;
        let [mut lru, recent, frequent, past_recent, past_frequent] = self.columns(own, clock);
        for (_, index) in oldest(&mut lru, size) {
            let at = self.layout.shadow(own.domain, index);
            self.mem.store(at, self.mem.load(at) & !Recency::TICK_MASK);
        }
        self.trim_adaptive(
            own,
            [recent, frequent],
            [past_recent, past_frequent],
            size,
            clock,
        );
    }

    /// Entries of the LRU shadow, then of the four places of the ARC shadow. Ticks from the future are damage.
    fn columns(&self, own: &Own, clock: u64) -> [Column; 5] {
        let mut columns = [const { Column::new() }; 5];
        for index in 0..self.layout.shadow_sets() * SHADOW_WAYS as u32 {
            let at = self.layout.shadow(own.domain, index);
            let entry = self.shadow_at(at);
            let ticks = [entry.lru, entry.arc].map(|word| word & Recency::TICK_MASK);
            if ticks.iter().any(|&tick| tick > clock) {
                self.mem.store(at, 0);
                self.mem.store(at + 8, 0);
                continue;
            }
            if entry.is_in_lru() {
                columns[0].push((ticks[0], index));
            }
            if (IN_RECENT..=WAS_FREQUENT).contains(&entry.place()) {
                columns[entry.place() as usize].push((ticks[1], index));
            }
        }
        columns
    }

    /// Evicts from the ARC shadow until `size` are left, then forgets ghosts down to ARC's two bounds.
    fn trim_adaptive(
        &self,
        own: &Own,
        mut held: [Column; 2],
        mut past: [Column; 2],
        size: u64,
        clock: u64,
    ) {
        let target = self.layout.policy(own.domain, Policy::ShadowTarget);
        let target = Target(self.mem.load(target)).objects(size);
        let set = |index: u32, word: u64| {
            self.mem
                .store(self.layout.shadow(own.domain, index) + 8, word);
        };
        let [recent, frequent] = held.each_ref().map(|column| column.len() as u64);
        let excess = (recent + frequent).saturating_sub(size);
        // One by one, ARC would take from the recent list while it is longer than its target.
        let from_recent = recent.saturating_sub(target).min(excess);
        let from_frequent = (excess - from_recent).min(frequent);
        let from_recent = excess - from_frequent;
        let leaves = [from_recent, from_frequent];
        let left = [recent - from_recent, frequent - from_frequent];
        for i in [0, 1] {
            for (_, index) in oldest(&mut held[i], left[i]) {
                set(index, pack(WAS_RECENT + i as u64, clock));
            }
        }
        let mut ghosts = [0_u64; 2];
        let mut room = size.saturating_sub(left[0]);
        for i in [0, 1] {
            let keep = room.saturating_sub(leaves[i]);
            for (_, index) in oldest(&mut past[i], keep) {
                set(index, 0);
            }
            ghosts[i] = past[i].len() as u64 + leaves[i];
            room = size.saturating_sub(ghosts[0]);
        }
        let at = self.layout.policy(own.domain, Policy::ShadowGhosts);
        self.mem.store(at, ghosts[0] | ghosts[1] << 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lead_changes_only_after_a_clear_run() {
        let mut score = Score(0);
        for _ in 0..LEAD {
            assert_eq!(score.leader(), Arm::Adaptive);
            score = score.with(Arm::Lru);
        }
        assert_eq!(score.leader(), Arm::Lru);
        for _ in 0..2 * LEAD - 1 {
            score = score.with(Arm::Adaptive);
            assert_eq!(score.leader(), Arm::Lru);
        }
        assert_eq!(score.with(Arm::Adaptive).leader(), Arm::Adaptive);
    }

    proptest! {
        #[test]
        fn any_words_are_read_without_panic(score: u64, lru: u64, arc: u64) {
            let next = Score(score).with(Arm::Adaptive);
            prop_assert!((next.0 as u8).cast_signed().abs() <= SCORE_MAX);
            let _ = (Shadow { lru, arc }.worth(), Shadow { lru, arc }.is_in_arc());
        }
    }
}
