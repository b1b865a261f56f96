//! Looking at everything a region holds: for reports, and for verifying every object. Believes nothing it reads.
//!
//! Nothing here stores into the region. What is seen was true at some moment during the call; others go on working.

use crate::buffers::{Buffers, Piece};
use crate::core::{Core, Place, Scratch};
use crate::header::Header;
use crate::layout::Counter;
use crate::memory::Memory;
use crate::read::Units;
use crate::stats::Miss;
use crate::words::{ChunkWord, HeaderWord, State};

/// Bytes of an object that are verified at a time: bounds the memory of [`Core::verify`].
const VERIFY_BYTES: u64 = 16 << 20;

/// A header line that is not free.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Where.
    pub place: Place,
    /// Its state.
    pub state: State,
    /// Why its line is not an object's, where it should be one's. The fields below are then 0.
    pub damage: Option<Miss>,
    /// Number of its namespace in that domain, 0 = not registered.
    pub namespace: u16,
    /// Units over all sections.
    pub units: u64,
    /// Bytes stored under the key, without padding.
    pub bytes: u64,
    /// Chunks it takes.
    pub chunks: u64,
    /// Seconds from the region's format to its commit.
    pub stored_seconds: u32,
}

/// Chunks of a domain by what they are held for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkUse {
    /// Nobody's.
    pub free: u64,
    /// Held by a put under way.
    pub writing: u64,
    /// Held by an object that lookups find.
    pub valid: u64,
    /// Held by an object on its way out.
    pub retired: u64,
    /// About to be given back.
    pub leaving: u64,
    /// Held for a header that names something else by now, or for none: some process is to free them.
    pub orphaned: u64,
}

impl<M: Memory> Core<M> {
    /// Header lines of a domain that are not free, among `count` from `first` on. Returns where to go on; 0 at the end.
    pub fn objects(&self, domain: u32, first: u32, count: u32, mut visit: impl FnMut(Seen)) -> u32 {
        let end = first.saturating_add(count).min(self.layout.headers());
        for header in first..end {
            let word = HeaderWord(self.mem.load(self.layout.header(domain, header)));
            match word.state() {
                Some(State::Free) => {}
                state => visit(self.seen(domain, header, word, state)),
            }
        }
        if end == self.layout.headers() { 0 } else { end }
    }

    fn seen(&self, domain: u32, header: u32, word: HeaderWord, state: Option<State>) -> Seen {
        let place = Place {
            domain,
            header,
            generation: word.generation(),
        };
        let mut seen = Seen {
            place,
            state: state.unwrap_or(State::Free),
            damage: None,
            namespace: 0,
            units: 0,
            bytes: 0,
            chunks: 0,
            stored_seconds: 0,
        };
        match state {
            Some(State::Valid | State::Retired) => {
                let checked = self.check_header(place, None, &self.first_look(place));
                match checked {
                    Ok(found) => self.describe(&mut seen, &found),
                    Err(miss) => seen.damage = Some(miss),
                }
            }
            Some(_) => {}
            None => seen.damage = Some(Miss::HeaderCrc),
        }
        seen
    }

    fn describe(&self, seen: &mut Seen, header: &Header) {
        seen.namespace = header.namespace;
        seen.units = header.total_units();
        seen.bytes = header.total_units() * u64::from(header.unit_bytes);
        seen.chunks = self.slots(header.total_units(), header.unit_stride());
        seen.stored_seconds = header.stored_seconds;
    }

    /// Reads every unit of the object at a place and verifies it; returns its bytes. A core that is attached read-only
    /// leaves what fails as it is; the owner drops it, as after any read.
    ///
    /// # Errors
    /// The reason; [`Miss::Changed`] for an object that left meanwhile, which is no damage.
    pub fn verify(&self, place: Place, scratch: &mut Scratch) -> Result<u64, Miss> {
        if !self.is_place(place) {
            return Err(Miss::Bounds);
        }
        let header = self.check_header(place, None, &self.first_look(place))?;
        let unit = u64::from(header.unit_bytes);
        let at_once = (VERIFY_BYTES / unit).clamp(1, header.units.into());
        let mut buffer = Vec::new();
        let room = usize::try_from(at_once * unit).map_err(|_| Miss::Size)?;
        buffer.try_reserve_exact(room).map_err(|_| Miss::Size)?;
        buffer.resize(room, 0_u8);
        // SAFETY: the buffer outlives every read below and nobody else knows of it.
        let piece = unsafe { Piece::new(buffer.as_mut_ptr(), room) };
        let mut bytes = 0;
        for section in 0..u32::from(header.sections) {
            for first in (0..u32::from(header.units)).step_by(at_once as usize) {
                let units = Units {
                    section,
                    first,
                    count: Some((u32::from(header.units) - first).min(at_once as u32)),
                };
                bytes += self.read(place, None, units, Buffers::List(&[piece]), scratch)?;
            }
        }
        Ok(bytes)
    }

    /// Who holds the chunks of a domain. Chunk words are their owner host's: another host sees them as old as its caches.
    pub fn chunk_use(&self, domain: u32) -> ChunkUse {
        let mut chunks = ChunkUse::default();
        for local in 0..self.layout.geometry.domain_chunks {
            let chunk = ChunkWord(self.mem.load(self.layout.chunk_word(domain, local)));
            let counter = match self.holder(domain, chunk) {
                _ if chunk.is_free() => &mut chunks.free,
                Some(State::Writing) => &mut chunks.writing,
                Some(State::Valid) => &mut chunks.valid,
                Some(State::Retired) => &mut chunks.retired,
                Some(State::Leaving) => &mut chunks.leaving,
                Some(State::Free) | None => &mut chunks.orphaned,
            };
            *counter += 1;
        }
        chunks
    }

    /// State of the header that keeps a chunk.
    fn holder(&self, domain: u32, chunk: ChunkWord) -> Option<State> {
        let header = chunk.header().filter(|&h| h < self.layout.headers())?;
        let word = HeaderWord(self.mem.load(self.layout.header(domain, header)));
        chunk.is_kept_by(word).then(|| word.state())?
    }

    /// Puts ever begun in a domain, and uses of its objects by its own host (hits of lookups, reads, puts): numbers that
    /// rise, for rates.
    pub fn activity(&self, domain: u32) -> (u64, u64) {
        let generation = |header| {
            let word = HeaderWord(self.mem.load(self.layout.header(domain, header)));
            word.generation()
        };
        let claims = (0..self.layout.headers()).map(generation).sum();
        let uses = self.mem.load(self.layout.counter(domain, Counter::Clock));
        (claims, uses)
    }

    /// Fingerprints registered in a domain, by the number that its headers carry.
    pub fn namespaces(&self, domain: u32) -> Vec<(u16, [u8; 32])> {
        let count = self.layout.geometry.namespaces;
        let entry = |index: u32| {
            let line = crate::domain::load_sealed(&self.mem, self.layout.namespace(domain, index))?;
            let mut fingerprint = [0; 32];
            for (slot, word) in fingerprint.chunks_exact_mut(8).zip(&line[1..5]) {
                slot.copy_from_slice(&word.to_le_bytes());
            }
            (line[0] != 0).then_some((index as u16 + 1, fingerprint))
        };
        (0..count).filter_map(entry).collect()
    }
}
