//! Making room in the own domain: chunks are taken by their words, objects leave in two steps.
//!
//! Retiring an object hides it from lookups and leaves its bytes to those who looked before; releasing it frees its
//! chunks, oldest retirement first, and only when they are needed. Victims are the least recently used, taken from a
//! batch of the oldest that one scan of the recency words collects. All that is kept here is private to the process and
//! only a hint: every step is decided by a compare-and-swap on the word it changes.

use crate::core::{Core, Own, Place};
use crate::digest::Digest;
use crate::header::{Header, Line};
use crate::layout::{Counter, LINE, Layout, WAYS};
use crate::memory::{Check, Memory, Step};
use crate::news::Cause;
use crate::probe::{Accept, is_at, tag};
use crate::stats::Event;
use crate::victims::Victims;
use crate::words::{ChunkWord, FreeChunks, HeaderWord, List, Recency, State};
use std::collections::VecDeque;

/// This part of the domain's chunks stays retired, so that a read that looked up before still succeeds; what is retired
/// is no hit, so more would cost hit rate.
const RETIRED_PART: u64 = 512;
/// Small domains keep this part, up to [`RETIRED_MAX`] chunks.
const RETIRED_PART_SMALL: u64 = 64;
/// See [`RETIRED_PART_SMALL`].
const RETIRED_MAX: u64 = 4;
/// Chunk numbers remembered as probably free.
const HINTS_MAX: usize = 4096;
/// Entries of the private quarantine set of a read-only process.
const QUARANTINE_MAX: usize = 256;

/// Hints of one process about its own domain.
pub struct Owner {
    cursor: u32,
    hints: Vec<u32>,
    pub(crate) victims: Victims,
    retired: VecDeque<(u64, u32)>,
    retired_chunks: u64,
    pub(crate) swept_ms: u64,
    quarantined: VecDeque<Place>,
}

impl Owner {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            cursor: 0,
            hints: Vec::with_capacity(HINTS_MAX.min(layout.geometry.domain_chunks as usize)),
            victims: Victims::new(layout),
            retired: VecDeque::new(),
            retired_chunks: 0,
            swept_ms: 0,
            quarantined: VecDeque::with_capacity(QUARANTINE_MAX),
        }
    }

    pub(crate) fn is_quarantined(&self, place: Place) -> bool {
        self.quarantined.contains(&place)
    }

    pub(crate) fn quarantine(&mut self, place: Place) {
        if self.quarantined.len() == QUARANTINE_MAX {
            self.quarantined.pop_front();
        }
        self.quarantined.push_back(place);
    }

    pub(crate) fn forget_retired(&mut self) {
        self.retired.clear();
        self.retired_chunks = 0;
    }

    pub(crate) fn queue_retired(&mut self, tick: u64, header: u32, slots: u64) {
        self.retired.push_back((tick, header));
        self.retired_chunks += slots;
    }

    pub(crate) fn sort_retired(&mut self) {
        self.retired.make_contiguous().sort_unstable();
    }

    fn hint(&mut self, local: u32) {
        if self.hints.len() < HINTS_MAX {
            self.hints.push(local);
        }
    }
}

impl<M: Memory> Core<M> {
    /// Takes `count` chunks for a claimed header into `out`, evicting if need be. On failure `out` holds the chunks
    /// taken so far; the caller gives them back.
    pub(crate) fn take_chunks(
        &self,
        own: &Own,
        claim: Place,
        count: u64,
        out: &mut Vec<u32>,
    ) -> bool {
        let mut owner = self.owner();
        let held = ChunkWord::held(claim.header, claim.generation);
        loop {
            // Counted before they are taken: a sweep that looks in between finds more than the count says. That costs
            // a search, where fewer would cost an object.
            let missing = (count - out.len() as u64).cast_signed();
            let are_free = self.count_free(own, -missing).count() > 0;
            self.take_free(own, &mut owner, held, count, out, are_free);
            let missing = count - out.len() as u64;
            if missing > 0 {
                self.count_free(own, missing.cast_signed());
            }
            if missing == 0 || !self.make_room(own, &mut owner, missing) {
                return missing == 0;
            }
        }
    }

    fn take_free(
        &self,
        own: &Own,
        owner: &mut Owner,
        held: ChunkWord,
        count: u64,
        out: &mut Vec<u32>,
        are_free: bool,
    ) {
        let take = |local: u32| {
            let at = self.layout.chunk_word(own.domain, local);
            self.mem.load(at) == ChunkWord::FREE.0
                && self.mem.cas(at, ChunkWord::FREE.0, held.0).is_ok()
        };
        while (out.len() as u64) < count {
            match owner.hints.pop() {
                Some(local) if take(local) => out.push(local),
                Some(_) => {}
                None => break,
            }
        }
        if !are_free {
            return;
        }
        let total = self.layout.geometry.domain_chunks;
        let counted = self.free_chunks(own.domain);
        for _ in 0..total {
            if out.len() as u64 >= count {
                return;
            }
            owner.cursor = (owner.cursor + 1) % total;
            if take(owner.cursor) {
                out.push(owner.cursor);
            }
        }
        // None is left, whatever the count says; what is missing here was counted as taken.
        let missing = count - out.len() as u64;
        self.correct_free(own, counted, -missing.cast_signed());
    }

    /// About how many chunks of a domain are free.
    pub fn free_chunks(&self, domain: u32) -> FreeChunks {
        let at = self.layout.counter(domain, Counter::FreeChunks);
        FreeChunks(self.mem.load(at))
    }

    /// Counts chunks that were freed, or below 0 taken. Returns the count before.
    pub(crate) fn count_free(&self, own: &Own, count: i64) -> FreeChunks {
        let at = self.layout.counter(own.domain, Counter::FreeChunks);
        FreeChunks(self.mem.add(at, FreeChunks::change(count)))
    }

    /// Corrects the count if it did not change since it was `counted`; else a later look will.
    pub(crate) fn correct_free(&self, own: &Own, counted: FreeChunks, found: i64) -> bool {
        let at = self.layout.counter(own.domain, Counter::FreeChunks);
        let corrected = counted.corrected(found);
        self.mem.cas(at, counted.0, corrected.0).is_ok()
    }

    /// Frees chunks until about `need` more can be taken. False when nothing can be evicted.
    fn make_room(&self, own: &Own, owner: &mut Owner, need: u64) -> bool {
        let chunks = u64::from(self.layout.geometry.domain_chunks);
        let ahead = (chunks / RETIRED_PART).max((chunks / RETIRED_PART_SMALL).min(RETIRED_MAX));
        self.trim_shadows(own, &owner.victims);
        let mut scanned = false;
        while owner.retired_chunks < need + ahead
            && let Some(victim) = self.next_victim(own, owner, &mut scanned)
        {
            self.retire_victim(own, owner, victim);
        }
        let mut freed = 0;
        while freed < need {
            let Some((_, header)) = owner.retired.pop_front() else {
                break;
            };
            freed += self.release_retired(own, owner, header);
        }
        if freed == 0 {
            owner.retired_chunks = 0;
            return self.sweep_orphans_rarely(own, owner);
        }
        true
    }

    /// Chunks an object takes, from its header; garbage is cut to the domain's size.
    pub(crate) fn slots_of(&self, domain: u32, header: u32) -> u64 {
        self.slots_of_line(&self.line(self.layout.header(domain, header)))
    }

    fn retire_victim(&self, own: &Own, owner: &mut Owner, victim: (u64, u32, List)) {
        let (tick, header, list) = victim;
        let word = HeaderWord(self.mem.load(self.layout.header(own.domain, header)));
        match word.state() {
            Some(State::Valid) if self.is_leased(own.domain, header, word.generation()) => {}
            Some(State::Valid) => {
                if let Some((stamp, line)) = self.retire(own, header, word) {
                    self.stats.add(Event::Evictions, 1);
                    self.remember(own, &Header::decode(&line), list, stamp);
                    owner.victims.ghosts[list as usize] += 1;
                    owner.queue_retired(stamp, header, self.slots_of_line(&line));
                }
            }
            Some(State::Retired) => {
                owner.queue_retired(tick, header, self.slots_of(own.domain, header));
            }
            Some(State::Free) => {
                // Damage. Nothing is there to evict; whoever claims the header meanwhile stores another word.
                let at = self.layout.recency(own.domain, header);
                let _ = self.mem.cas(at, Recency::new(list.class(), tick).0, 0);
            }
            _ => {}
        }
    }

    /// First step: lookups miss, reads by generation still succeed. Returns the tick of the retirement and the line of
    /// what was retired. Once it is retired, others may use the header for the next object, so nothing is read after.
    pub(crate) fn retire(&self, own: &Own, header: u32, word: HeaderWord) -> Option<(u64, Line)> {
        let at = self.layout.header(own.domain, header);
        let line = self.line(at);
        let news = self.news_of(own, header, &line, Cause::Evicted);
        let retired = word.to(State::Retired);
        self.mem.cas(at, word.0, retired.0).ok()?;
        self.flush(at, LINE, Step::RetireFlush);
        self.tell(own, &news);
        self.mem.store_fence(Step::RetireFence);
        let tick = self.ticks(own.domain, 1);
        self.mark_retired(own, header, retired, tick);
        Some((tick, line))
    }

    fn release_retired(&self, own: &Own, owner: &mut Owner, header: u32) -> u64 {
        let line = self.line(self.layout.header(own.domain, header));
        let slots = self.slots_of(own.domain, header);
        owner.retired_chunks = owner.retired_chunks.saturating_sub(slots);
        let word = HeaderWord(line[0]);
        if !word.is(State::Retired) || self.is_leased(own.domain, header, word.generation()) {
            return 0;
        }
        let freed = self.release(own, header, &line, |local| owner.hint(local));
        freed.unwrap_or(0)
    }

    /// Second step, for a line in any state but free: the header lets go, then its chunks are free. Returns how many;
    /// `None` when the line changed meanwhile.
    pub(crate) fn release(
        &self,
        own: &Own,
        header: u32,
        line: &Line,
        mut freed: impl FnMut(u32),
    ) -> Option<u64> {
        let at = self.layout.header(own.domain, header);
        let word = HeaderWord(line[0]);
        let leaving = HeaderWord::new(State::Leaving, own.process, word.generation());
        self.mem.cas(at, word.0, leaving.0).ok()?;
        // In memory too, before its chunks are free and before the line itself is. Whoever made it leave first may have
        // died before its flush, so an heir flushes again.
        let heir = word.is(State::Leaving) || word.is(State::Writing);
        let (flush, fence) = if heir {
            (Step::HeirFlush, Step::HeirFence)
        } else {
            (Step::FreeFlush, Step::FreeFence)
        };
        self.flush(at, LINE, flush);
        if word.is(State::Valid) {
            self.tell(own, &self.news_of(own, header, line, Cause::Dropped));
        }
        self.mem.store_fence(fence);
        self.mark_left(own, header);
        self.clear_tag(own.domain, header);
        let held = ChunkWord::held(header, word.generation());
        let mut count = 0;
        // A writer that is still at work keeps the chunks; a later sweep finds them by their words.
        if word.is(State::Valid) || word.is(State::Retired) || !self.is_written(own, held) {
            let mut slot = Header::decode(line).table;
            for _ in 0..self.slots_of_line(line) {
                if !self
                    .mem
                    .judge(Check::FreeBounds, slot < self.layout.geometry.domain_chunks)
                {
                    break; // damaged, or never chained: the same sweep
                }
                let next = (self.mem.load(self.layout.table(own.domain, slot)) >> 32) as u32;
                if self.free_chunk(own, slot, held) {
                    freed(slot);
                    count += 1;
                }
                slot = next;
            }
        }
        self.count_free(own, count);
        self.mem.store(at, leaving.to(State::Free).0);
        Some(count.cast_unsigned())
    }

    fn slots_of_line(&self, line: &Line) -> u64 {
        let header = Header::decode(line);
        self.slots(header.total_units(), header.unit_stride())
            .min(self.layout.geometry.domain_chunks.into())
    }

    /// Frees one chunk if it is still held for that header and generation.
    pub(crate) fn free_chunk(&self, own: &Own, local: u32, held: ChunkWord) -> bool {
        let at = self.layout.chunk_word(own.domain, local);
        self.mem.cas(at, held.0, ChunkWord::FREE.0).is_ok()
    }

    pub(crate) fn clear_tag(&self, domain: u32, header: u32) {
        let (at, shift) = self.tag_place(domain, header);
        let mut word = self.mem.load(at);
        while word & (0xFFFF_FFFF << shift) != 0 {
            match self.mem.cas(at, word, word & !(0xFFFF_FFFF << shift)) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }

    /// Word of a header's tag and the tag's shift in it.
    pub(crate) fn tag_place(&self, domain: u32, header: u32) -> (u64, u32) {
        let at = self.layout.tags(domain, header / WAYS);
        let way = header % WAYS;
        (at + 8 * u64::from(way / 2), 32 * (way % 2))
    }

    /// Drops an own object that failed its checks. False when it had changed meanwhile.
    pub(crate) fn discard(&self, place: Place) -> bool {
        let Some(own) = &self.own else { return false };
        let line = self.line(self.layout.header(place.domain, place.header));
        is_at(&Header::decode(&line), place)
            && self.release(own, place.header, &line, |_| ()).is_some()
    }

    /// Retires the own domain's object under `key`, and all others: a key that was put again while its first writer was
    /// silent has two. False when there is none.
    pub fn evict_key(&self, key: &Digest) -> bool {
        let Some(own) = &self.own else { return false };
        let mut retired = 0;
        for _ in 0..2 * WAYS {
            let mut found = [None];
            self.probe(own.domain, &[*key], Accept::Valid, &mut found);
            let Some(place) = found[0] else { break };
            let word = HeaderWord::new(State::Valid, 0, place.generation);
            retired += u64::from(self.retire(own, place.header, word).is_some());
        }
        self.stats.add(Event::Evictions, retired);
        retired > 0
    }

    /// Frees a way of two full sets: the least recently used object there. `None` when all are being written.
    pub(crate) fn evict_from_sets(&self, own: &Own, sets: [u32; 2]) -> Option<u32> {
        let ways = sets
            .into_iter()
            .flat_map(|set| (0..WAYS).map(move |way| set * WAYS + way));
        let oldest = ways
            .filter_map(|header| {
                let word = HeaderWord(self.mem.load(self.layout.header(own.domain, header)));
                let recency = Recency(self.mem.load(self.layout.recency(own.domain, header)));
                let leased = self.is_leased(own.domain, header, word.generation());
                ((word.is(State::Valid) || word.is(State::Retired)) && !leased)
                    .then_some((recency.tick(), header))
            })
            .min();
        let (_, header) = oldest?;
        let line = self.line(self.layout.header(own.domain, header));
        let state = HeaderWord(line[0]);
        if !state.is(State::Valid) && !state.is(State::Retired) {
            return None;
        }
        self.release(own, header, &line, |_| ())?;
        self.stats.add(Event::ConflictEvictions, 1);
        Some(header)
    }

    /// First way of a set whose tag is 0, and how many there are.
    pub(crate) fn free_ways(&self, domain: u32, set: u32) -> (u32, [bool; WAYS as usize]) {
        let line = self.line(self.layout.tags(domain, set));
        let free = std::array::from_fn(|way| tag(&line, way as u32) == 0);
        (free.iter().filter(|&&f| f).count() as u32, free)
    }
}
