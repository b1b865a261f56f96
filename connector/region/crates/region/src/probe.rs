//! Finding keys: tag lines first, header lines for the ways whose tag matches.
//!
//! Keys are probed in batches: every line that a batch needs is asked for before the first is used, and a foreign
//! domain's lines are dropped together under one fence. What is found is a hint. It becomes truth when a read has
//! verified it, so nothing here checks more than state and key.

use crate::core::{Core, Place};
use crate::digest::Digest;
use crate::header::Header;
use crate::layout::{Counter, LINE, WAYS};
use crate::memory::{Check, Memory, Step};
use crate::stats::Event;
use crate::words::{HeaderWord, Recency, State, quarantine_entry};

/// Keys probed together: their lines fit into L1. Two fences per batch and foreign domain wait for memory, so fewer
/// batches are faster: 1,000 keys in four domains took 229 us in batches of 32, 211 of 64, 183 of 128.
pub const BATCH: usize = 128;
/// Keys that a lookup probes first: most lookups of a new prompt end at once.
const FIRST_BATCH: usize = 32;

/// Headers that a round looks at: one for each key of a batch, and room for keys with more. A key that was evicted and
/// stored again and again has its tag on the retired ones too, and its valid one may be the last of all.
const MATCHES: usize = 4 * BATCH;
/// Ways a key may lie in.
const WAYS_PER_KEY: usize = 2 * WAYS as usize;

/// What a probe accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Objects that are not on their way out: lookups.
    Valid,
    /// Also retired ones, when no valid one is there: reads after a lookup.
    Readable,
}

#[derive(Clone, Copy, Default)]
struct Match {
    key: u8,
    header: u32,
}

impl<M: Memory> Core<M> {
    /// Looks a batch up in one domain: `found[i]` is filled for each key that is still `None` and lies there.
    pub(crate) fn probe(
        &self,
        domain: u32,
        keys: &[Digest],
        accept: Accept,
        found: &mut [Option<Place>],
    ) {
        let foreign = self.is_foreign(domain);
        let sets = self.layout.geometry.sets;
        let wanted = |found: &[Option<Place>], i: usize| found[i].is_none();
        let tags = |found: &[Option<Place>], visit: &dyn Fn(u64)| {
            let mine = keys.iter().enumerate().filter(|&(i, _)| wanted(found, i));
            mine.flat_map(|(_, key)| key.sets(sets))
                .for_each(|set| visit(self.layout.tags(domain, set)));
        };
        if foreign {
            tags(found, &|at| {
                self.mem.invalidate(at, LINE, Step::TagInvalidate);
            });
            self.mem.full_fence(Step::TagFence);
        }
        tags(found, &|at| self.mem.prefetch(at));
        let mut matches = [Match::default(); MATCHES];
        let mut next = 0;
        while next < keys.len() {
            let mut count = 0;
            while next < keys.len() && count + WAYS_PER_KEY <= MATCHES {
                if wanted(found, next) {
                    let key = &keys[next];
                    count += self.match_tags(domain, next as u8, key, &mut matches[count..]);
                }
                next += 1;
            }
            self.fetch_headers(domain, foreign, &matches[..count]);
            self.match_headers(domain, keys, accept, &matches[..count], found);
        }
    }

    /// Asks for the header lines of matches, from memory where the caches may be stale.
    #[inline]
    fn fetch_headers(&self, domain: u32, foreign: bool, matches: &[Match]) {
        let lines = || {
            let headers = matches.iter().map(|one| one.header);
            headers.map(|header| self.layout.header(domain, header))
        };
        if foreign && !matches.is_empty() {
            lines().for_each(|at| self.mem.invalidate(at, LINE, Step::ProbeInvalidate));
            self.mem.full_fence(Step::ProbeFence);
        }
        lines().for_each(|at| self.mem.prefetch(at));
    }

    /// Headers of this domain whose tag is the key's.
    #[inline]
    fn match_tags(&self, domain: u32, key: u8, digest: &Digest, out: &mut [Match]) -> usize {
        let mut count = 0;
        for set in digest.sets(self.layout.geometry.sets) {
            let line = self.line(self.layout.tags(domain, set));
            for way in 0..WAYS {
                if tag(&line, way) == digest.tag && count < out.len() {
                    out[count] = Match {
                        key,
                        header: set * WAYS + way,
                    };
                    count += 1;
                }
            }
        }
        count
    }

    #[inline]
    fn match_headers(
        &self,
        domain: u32,
        keys: &[Digest],
        accept: Accept,
        matches: &[Match],
        found: &mut [Option<Place>],
    ) {
        for pass in [State::Valid, State::Retired] {
            if pass == State::Retired && accept == Accept::Valid {
                return;
            }
            for one in matches {
                let i = usize::from(one.key);
                if found[i].is_some() {
                    continue;
                }
                let word = HeaderWord(self.mem.load(self.layout.header(domain, one.header)));
                if word.is(pass) && self.has_key(domain, one.header, &keys[i]) {
                    let place = Place {
                        domain,
                        header: one.header,
                        generation: word.generation(),
                    };
                    if self.is_quarantined(place) {
                        self.stats.add(Event::MissQuarantined, 1);
                    } else {
                        found[i] = Some(place);
                    }
                }
            }
        }
    }

    /// True when the header's key words are the digest's. The line may change meanwhile: a hint.
    pub(crate) fn has_key(&self, domain: u32, header: u32, digest: &Digest) -> bool {
        let at = self.layout.header(domain, header);
        let same = self.mem.load(at + 8) == digest.a
            && self.mem.load(at + 16) == digest.b
            && self.mem.load(at + 24) as u32 == digest.c;
        self.mem.judge(Check::Key, same)
    }

    /// True when a place that came from outside lies in the region.
    pub fn is_place(&self, place: Place) -> bool {
        place.domain < self.layout.geometry.domains && place.header < self.layout.headers()
    }

    /// Looks one key up in every domain.
    pub fn locate(&self, digest: &Digest, accept: Accept) -> Option<Place> {
        let mut found = [None];
        for domain in self.domains() {
            self.probe(domain, std::slice::from_ref(digest), accept, &mut found);
            if found[0].is_some() {
                break;
            }
        }
        found[0]
    }

    /// Looks a batch of at most [`BATCH`] keys up in every domain.
    pub fn locate_batch(&self, keys: &[Digest], found: &mut [Option<Place>]) {
        for domain in self.domains() {
            self.probe(domain, keys, Accept::Valid, found);
            if found.iter().all(Option::is_some) {
                break;
            }
        }
    }

    /// Length of the leading run of keys that are found, `visit` being called for each; a key that is `None` ends it.
    /// Touches what it finds: the head of the chain becomes the most recent, so that eviction takes chains from their
    /// tails.
    pub fn lookup(
        &self,
        count: usize,
        mut key: impl FnMut(usize) -> Option<Digest>,
        mut visit: impl FnMut(Place),
    ) -> usize {
        let first_tick = match &self.own {
            Some(own) if count > 0 => self.ticks(own.domain, count as u64),
            _ => 0,
        };
        let mut run = 0;
        let mut elsewhere = Vec::new();
        while run < count {
            let mut found = [None; BATCH];
            let mut keys = [Digest::default(); BATCH];
            let most = if run == 0 { FIRST_BATCH } else { BATCH };
            let mut n = 0;
            while n < most.min(count - run)
                && let Some(digest) = key(run + n)
            {
                keys[n] = digest;
                n += 1;
            }
            self.locate_batch(&keys[..n], &mut found[..n]);
            let hits = found[..n].iter().take_while(|f| f.is_some()).count();
            for (i, place) in found[..hits].iter().flatten().enumerate() {
                let tick = first_tick.wrapping_add((count - 1 - run - i) as u64);
                elsewhere.extend(self.touch(*place, tick));
                visit(*place);
            }
            run += hits;
            if hits < most {
                break;
            }
        }
        if !elsewhere.is_empty() {
            self.tell_used(elsewhere.into_iter().rev());
        }
        if run < count {
            // What is missing will be stored, from here down.
            let left = (count - run) as u64;
            self.descent.set(first_tick.wrapping_add(left - 1), left);
        }
        self.stats.add(Event::LookupKeys, count as u64);
        self.stats.add(Event::LookupHits, run as u64);
        run
    }

    /// Marks an own object as used at `tick`. Returns the place whose owner is to be told instead, which is not ours to
    /// mark: another domain's object, or the original of a copy. See [`Core::tell_used`].
    #[inline]
    pub(crate) fn touch(&self, place: Place, tick: u64) -> Option<Place> {
        let own = self.own.as_ref().filter(|own| own.domain == place.domain);
        let Some(own) = own else { return Some(place) };
        let recency = self.mem.load(self.layout.recency(own.domain, place.header));
        if recency == Recency::COPY.0
            && let Some(original) = self.original(own, place.header)
        {
            return Some(original); // the copy keeps its age
        }
        self.mark_used(own, place.header, tick);
        None
    }

    /// True when this object failed its checks here before.
    fn is_quarantined(&self, place: Place) -> bool {
        let Some(own) = &self.own else {
            return self.owner().is_quarantined(place);
        };
        if self
            .mem
            .load(self.layout.counter(own.domain, Counter::Quarantined))
            == 0
        {
            return false;
        }
        let entry = quarantine_entry(place.domain, place.header, place.generation);
        let line = self
            .layout
            .quarantine(own.domain, self.quarantine_line(place));
        self.line(line).contains(&entry)
    }

    fn quarantine_line(&self, place: Place) -> u32 {
        place.header.wrapping_mul(0x9E37_79B1).rotate_left(16)
            % self.layout.geometry.quarantine_lines
    }

    /// Stops lookups from finding this object again until its header is claimed anew.
    pub fn quarantine(&self, place: Place) {
        let Some(own) = &self.own else {
            return self.owner().quarantine(place);
        };
        let entry = quarantine_entry(place.domain, place.header, place.generation);
        let line = self
            .layout
            .quarantine(own.domain, self.quarantine_line(place));
        let words = self.line(line);
        if words.contains(&entry) {
            return;
        }
        let counter = self.layout.counter(own.domain, Counter::Quarantined);
        let victim = self.mem.add(counter, 1) % 8;
        let way = words
            .iter()
            .position(|&w| w == 0)
            .unwrap_or(victim as usize);
        self.mem.store(line + 8 * way as u64, entry);
    }
}

/// Tag of a way in a tag line.
pub(crate) const fn tag(line: &[u64; 8], way: u32) -> u32 {
    (line[(way / 2) as usize] >> (32 * (way % 2))) as u32
}

/// True when an object of this header could be the one at `place`.
pub(crate) fn is_at(header: &Header, place: Place) -> bool {
    header.word.generation() == place.generation
        && (header.word.is(State::Valid) || header.word.is(State::Retired))
}
