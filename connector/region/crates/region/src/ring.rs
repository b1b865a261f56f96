//! Rings: small news from one host to the others, one line per entry, without a shared head.
//!
//! A ring belongs to a domain. Processes of its host append: a ticket from an atomic of the domain is the entry's
//! sequence number and chooses its line. Anyone reads, at a cursor of its own, and writes nothing in the producer's
//! domain. An entry is a line {sequence, body, checksum}: what a reader gets was written by one producer in one piece.
//!
//! | the line at the cursor holds | meaning | the reader |
//! |---|---|---|
//! | the cursor's sequence | the entry | takes it |
//! | a lower one, or no sound entry | not yet | waits; passes over when a later entry is there and the gap is old |
//! | a higher one | the producer came round | goes on with the oldest entry left, counts the rest as missed |
//!
//! So a producer may die or stop at any instruction: its entry stays a gap, which readers pass over. One that goes on a
//! whole round later finds a newer entry in its line and drops its own, or tears that one, which its checksum shows.
//! Entries are advice: losing one costs time, never truth.
//!
//! A sequence number is the domain's turn (how often it changed hands, 16 bits) and a count from 1 (48 bits). So it rises
//! for ever, also when a new owner begins with an empty ring.

use crate::core::{Core, Own};
use crate::domain;
use crate::header::{self, Line};
use crate::layout::{LINE, Ring};
use crate::memory::{Check, Memory, Step};
use crate::stats::Event;

/// Words of an entry that are the caller's.
pub const BODY_WORDS: usize = 6;
/// What an entry says.
pub type Body = [u64; BODY_WORDS];

const COUNT_BITS: u32 = 48;
/// Lines looked at under one fence.
const WINDOW: u64 = 16;
/// A gap that is this old is passed over: its producer died, or stands still.
const GAP_MS: u64 = 20;

/// First sequence number of a turn, less one: what the ticket starts from.
pub const fn first_ticket(turn: u64) -> u64 {
    turn << COUNT_BITS
}

/// The turn of a sequence number.
pub const fn turn_of(sequence: u64) -> u64 {
    sequence >> COUNT_BITS
}

/// Where a reader stands in one ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Sequence number of the entry that is read next; 0 = the oldest one that is there.
    pub next: u64,
    /// Since when that entry is a gap, in milliseconds since 1970; 0 = it is none.
    pub gap_ms: u64,
}

impl Cursor {
    /// At this sequence number, passing over gaps at once.
    pub(crate) const fn hasty(next: u64) -> Self {
        Self { next, gap_ms: 1 }
    }

    fn go(&mut self, next: u64) {
        // A cursor that is hasty stays so.
        let gap_ms = u64::from(self.gap_ms == 1);
        *self = Self { next, gap_ms };
    }
}

/// What the line at a cursor holds.
enum Found {
    Entry(Body),
    NotYet,
    Later(u64),
}

impl<M: Memory> Core<M> {
    /// Appends an entry to a ring of the own domain and starts its way to memory; the caller fences. False when the
    /// ring came round in the meantime.
    pub(crate) fn push(&self, own: &Own, ring: Ring, body: &Body) -> bool {
        let ticket = self.layout.ring_ticket(own.domain, ring);
        let sequence = self.mem.add(ticket, 1).wrapping_add(1); // whatever damage left there
        let at = self.layout.ring_line(own.domain, ring, sequence);
        let found = self.mem.load(at);
        // No number above the ticket was ever given out: that is damage, and written over.
        if found > sequence && found <= self.mem.load(ticket) {
            return false;
        }
        let line = self.ring_entry(at, sequence, body);
        for (i, word) in line.iter().enumerate().skip(1) {
            self.mem.store(at + 8 * i as u64, *word);
        }
        self.mem.store(at, sequence);
        self.flush(at, LINE, Step::RingFlush);
        true
    }

    /// The line of an entry: its checksum covers place, sequence and body, and continues from the region's.
    fn ring_entry(&self, at: u64, sequence: u64, body: &Body) -> Line {
        let mut line = [sequence, 0, 0, 0, 0, 0, 0, 0];
        line[1..=BODY_WORDS].copy_from_slice(body);
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&at.to_le_bytes());
        bytes[8..].copy_from_slice(&header::line_bytes(&line)[..56]);
        line[7] = u64::from(self.seeded_crc(&bytes)) << 32;
        line
    }

    /// Reads the entries of a ring from `cursor` on, at most `limit`, and moves it. `visit` gets sequence and body.
    /// Returns how many entries were missed: overwritten before they were read, or passed over as gaps.
    pub(crate) fn poll(
        &self,
        domain: u32,
        ring: Ring,
        cursor: &mut Cursor,
        limit: usize,
        mut visit: impl FnMut(u64, &Body),
    ) -> u64 {
        let entries = self.layout.ring_entries(ring);
        let (mut taken, mut missed) = (0, 0);
        // What the lines say decides how often this goes round, so the rounds are bounded whatever they say.
        for _ in 0..(2 * entries).saturating_add(limit as u64) {
            if taken >= limit || !self.mem.is_intact() {
                break;
            }
            let window = WINDOW.min(entries).min((limit - taken) as u64);
            self.refresh(
                domain,
                ring,
                (0..window).map(|i| cursor.next.wrapping_add(i)),
            );
            let start = cursor.next;
            let end = start.wrapping_add(window);
            let mut found = self.at_cursor(domain, ring, start);
            while let Found::Entry(body) = found {
                visit(cursor.next, &body);
                taken += 1;
                cursor.go(cursor.next.wrapping_add(1));
                if cursor.next == end {
                    break;
                }
                found = self.at_cursor(domain, ring, cursor.next);
            }
            if cursor.next != start {
                continue; // more, or a fresh look at the line where it ended
            }
            missed += match found {
                Found::Later(sequence) => self.catch_up(ring, cursor, sequence),
                _ if self.begin_turn(domain, ring, cursor) => 0,
                _ => match self.pass_over(domain, ring, cursor) {
                    Some(gap) => gap,
                    None => break,
                },
            };
        }
        self.stats.add(Event::RingMissed, missed);
        missed
    }

    /// Drops lines of another domain's ring from the caches, so that the next look finds what memory has.
    fn refresh(&self, domain: u32, ring: Ring, sequences: impl Iterator<Item = u64>) {
        if !self.is_foreign(domain) {
            return;
        }
        self.mem.full_fence(Step::RingFenceBefore);
        for sequence in sequences {
            let at = self.layout.ring_line(domain, ring, sequence);
            self.mem.invalidate(at, LINE, Step::RingInvalidate);
        }
        self.mem.full_fence(Step::RingLookFence);
    }

    fn at_cursor(&self, domain: u32, ring: Ring, next: u64) -> Found {
        let at = self.layout.ring_line(domain, ring, next);
        let line = self.line(at);
        let mut body = [0; BODY_WORDS];
        body.copy_from_slice(&line[1..=BODY_WORDS]);
        let sequence = line[0];
        if sequence < next || sequence == 0 {
            return Found::NotYet;
        }
        let sound = self.ring_entry(at, sequence, &body) == line;
        if !self.mem.judge(Check::RingCrc, sound) {
            return Found::NotYet; // being written, or torn for good: then a later entry will show it
        }
        if sequence == next {
            Found::Entry(body)
        } else {
            Found::Later(sequence)
        }
    }

    /// Moves to the oldest entry that can still be there when `found` is. Returns how many were missed; a reader that
    /// has just begun, or meets a new turn, has missed none that it could count.
    fn catch_up(&self, ring: Ring, cursor: &mut Cursor, found: u64) -> u64 {
        let first = first_ticket(turn_of(found)) + 1; // no overflow: the low bits of a first ticket are zero
        let oldest = found
            .saturating_add(1)
            .saturating_sub(self.layout.ring_entries(ring))
            .max(first);
        let next = oldest.max(cursor.next.wrapping_add(1));
        let missed = if turn_of(cursor.next) == turn_of(found) {
            next - cursor.next
        } else {
            0
        };
        cursor.go(next);
        missed
    }

    /// Moves to the start of the domain's present turn. True when the cursor was in an earlier one.
    fn begin_turn(&self, domain: u32, ring: Ring, cursor: &mut Cursor) -> bool {
        let own = self.own.as_ref().is_some_and(|own| own.domain == domain);
        let turn = if own {
            turn_of(self.mem.load(self.layout.ring_ticket(domain, ring)))
        } else {
            let owner = domain::load_owner(&self.mem, &self.layout, domain);
            owner.map_or(0, |owner| owner.turn) & (u64::MAX >> COUNT_BITS)
        };
        let is_new = turn_of(cursor.next) < turn;
        if is_new {
            cursor.go(first_ticket(turn) + 1);
        }
        is_new
    }

    /// Passes over the gap at the cursor when a later entry is there and the gap is old. Returns how many entries were
    /// passed over, or `None` when there is nothing to do but wait.
    fn pass_over(&self, domain: u32, ring: Ring, cursor: &mut Cursor) -> Option<u64> {
        // Every entry of the window that was just refreshed, then ever farther ones.
        let far = std::iter::successors(Some(WINDOW), |distance| Some(2 * distance));
        let ahead = || {
            (1..WINDOW)
                .chain(far.clone())
                .take_while(|&distance| distance < self.layout.ring_entries(ring))
                .map(|distance| cursor.next.wrapping_add(distance))
        };
        self.refresh(domain, ring, ahead());
        let is_later = |next: u64| !matches!(self.at_cursor(domain, ring, next), Found::NotYet);
        if !ahead().any(is_later) {
            return None;
        }
        let now = (self.now_ms)();
        if cursor.gap_ms == 0 {
            cursor.gap_ms = now.max(2);
        }
        if now.saturating_sub(cursor.gap_ms) < GAP_MS {
            return None;
        }
        cursor.go(cursor.next.wrapping_add(1));
        Some(1)
    }
}
