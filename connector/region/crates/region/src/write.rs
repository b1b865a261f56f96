//! Storing an object: claim a header, take chunks, copy, publish.
//!
//! Order (software class): claim a free header -> payload by non-temporal stores, table -> fence by every thread that
//! stored -> table and tag flushed, fence -> header valid,g -> flush, fence. A free header is not valid in memory
//! either, as it became free only after that was flushed (see [`crate::evict`]), so the claim needs no flush of its own.
//!
//! The three parts (reserve, write, commit) may run in three processes of one host. A put has two holders, the reserver
//! (named in the header word) and the writer (named in its process slot); nothing is freed while either lives.

use crate::buffers::{Buffers, Cursor};
use crate::core::{Core, Own, Place, Scratch};
use crate::digest::Digest;
use crate::header::{self, CRC32C, Header};
use crate::layout::{LINE, WAYS};
use crate::memory::{Check, Memory, Step};
use crate::probe::{Accept, tag};
use crate::read::Units;
use crate::stats::{Event, Refusal};
use crate::tiles::Tiles;
use crate::words::{ChunkWord, GENERATION_MAX, HeaderWord, Progress, State};

/// Sections an object can have: what the progress word counts.
pub const SECTIONS_MAX: u32 = 15;

/// Size and kind of an object that is about to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Units of a section.
    pub units: u16,
    /// Bytes of a unit.
    pub unit_bytes: u32,
    /// Sections: ranks of this host that share the object.
    pub sections: u8,
    /// Namespace number in the own domain.
    pub namespace: u16,
}

impl<M: Memory> Core<M> {
    /// Stores units from `buffers` under `key` in one go.
    ///
    /// # Errors
    /// Why nothing was stored, already counted.
    pub fn put(
        &self,
        key: &Digest,
        shape: Shape,
        buffers: Buffers,
        scratch: &mut Scratch,
    ) -> Result<(), Refusal> {
        self.put_by(key, shape, buffers.len(), scratch, |place, scratch| {
            self.copy_section(place, Units::ALL, buffers, scratch)
        })
    }

    /// [`Core::put`] of `bytes` that `copy` stores.
    pub(crate) fn put_by(
        &self,
        key: &Digest,
        shape: Shape,
        bytes: u64,
        scratch: &mut Scratch,
        copy: impl FnOnce(Place, &mut Scratch) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let result = self.reserve(key, shape, scratch).and_then(|place| {
            let stored = self
                .write_section(place, 0, || copy(place, scratch))
                .and_then(|()| self.publish(place, false, scratch));
            if stored.is_err() {
                self.abort(place);
            }
            stored
        });
        match result {
            Ok(()) => {
                self.stats.add(Event::Puts, 1);
                self.stats.add(Event::PutBytes, bytes);
            }
            Err(refusal) => self.stats.add(refusal.into(), 1),
        }
        result
    }

    /// Claims a header and chunks for an object. Not counted: the caller knows what it asked for.
    ///
    /// # Errors
    /// Why not.
    pub fn reserve(
        &self,
        key: &Digest,
        shape: Shape,
        scratch: &mut Scratch,
    ) -> Result<Place, Refusal> {
        let own = self.own.as_ref().ok_or(Refusal::ReadOnly)?;
        if !self.mem.is_intact() {
            return Err(Refusal::Lost);
        }
        let stride = u64::from(shape.unit_bytes).next_multiple_of(LINE);
        let total = u64::from(shape.units) * u64::from(shape.sections);
        let slots = self.slots(total, stride);
        if slots > self.layout.geometry.domain_chunks.into() {
            return Err(Refusal::TooLarge);
        }
        if let Some(place) = self.locate(key, Accept::Valid) {
            self.touch(place, self.put_tick(own));
            return Err(Refusal::Exists);
        }
        if self.is_being_written(own, key) {
            return Err(Refusal::Pending);
        }
        let claim = self.claim(own, key).ok_or(Refusal::Full)?;
        let recalled = self.recall(own, key);
        scratch.slots.clear();
        if !self.take_chunks(own, claim, slots, &mut scratch.slots) {
            let held = ChunkWord::held(claim.header, claim.generation);
            self.give_back(own, &scratch.slots, held);
            self.abort(claim);
            return Err(Refusal::Full);
        }
        // A hole under the chunk words reads as zeros: then these chunks, and their table slots, may be anybody's.
        if !self.mem.is_intact() {
            return Err(Refusal::Lost);
        }
        self.chain(own, &scratch.slots);
        self.mark_claimed(own, claim.header, key, recalled);
        let header = Header {
            word: HeaderWord::new(State::Writing, own.process, claim.generation),
            key_a: key.a,
            key_b: key.b,
            key_c: key.c,
            unit_bytes: shape.unit_bytes,
            units: shape.units,
            sections: shape.sections,
            algorithm: CRC32C,
            part: 0,
            parts: 1,
            namespace: shape.namespace,
            table: scratch.slots[0],
            table_crc: 0,
            epoch: self.identity.epoch as u32,
            stored_seconds: 0,
        };
        let at = self.layout.header(own.domain, claim.header);
        for (i, word) in header.encode().iter().enumerate().skip(1) {
            self.mem.store(at + 8 * i as u64, *word);
        }
        let progress = Progress::start(claim.generation);
        self.mem
            .store(self.layout.progress(own.domain, claim.header), progress.0);
        Ok(claim)
    }

    /// True when a process of this host that is not silent stores this key right now.
    fn is_being_written(&self, own: &Own, key: &Digest) -> bool {
        key.sets(self.layout.geometry.sets).into_iter().any(|set| {
            let tags = self.line(self.layout.tags(own.domain, set));
            (0..WAYS).any(|way| {
                let header = set * WAYS + way;
                tag(&tags, way) == key.tag && {
                    let word = HeaderWord(self.mem.load(self.layout.header(own.domain, header)));
                    word.is(State::Writing)
                        && self.has_key(own.domain, header, key)
                        && !self.is_silent(own, word.owner())
                }
            })
        })
    }

    /// Claims a free header line in the emptier of the key's two sets.
    fn claim(&self, own: &Own, key: &Digest) -> Option<Place> {
        let sets = key.sets(self.layout.geometry.sets);
        let mut choice = sets.map(|set| (self.free_ways(own.domain, set), set));
        if choice[1].0.0 > choice[0].0.0 {
            choice.swap(0, 1);
        }
        let by_tag = choice.iter().flat_map(|((_, free), set)| {
            (0..WAYS)
                .filter(|&way| free[way as usize])
                .map(move |way| set * WAYS + way)
        });
        for header in by_tag {
            if let Some(place) = self.claim_header(own, key, header) {
                return Some(place);
            }
        }
        // No tag is 0. A process may have died between letting go of a header and clearing its tag.
        let all = sets
            .iter()
            .flat_map(|set| (0..WAYS).map(move |way| set * WAYS + way));
        for header in all {
            if let Some(place) = self.claim_header(own, key, header) {
                return Some(place);
            }
        }
        let header = self.evict_from_sets(own, sets)?;
        self.claim_header(own, key, header)
    }

    fn claim_header(&self, own: &Own, key: &Digest, header: u32) -> Option<Place> {
        let at = self.layout.header(own.domain, header);
        let word = HeaderWord(self.mem.load(at));
        if !word.is(State::Free) || word.generation() >= GENERATION_MAX {
            return None;
        }
        let generation = word.generation() + 1;
        let claimed = HeaderWord::new(State::Writing, own.process, generation);
        self.mem.cas(at, word.0, claimed.0).ok()?;

        // The key's words before the tag: who finds the tag compares them.
        self.mem.store(at + 8, key.a);
        self.mem.store(at + 16, key.b);
        self.mem.store(at + 24, key.c.into());
        self.set_tag(own.domain, header, key.tag);
        Some(Place {
            domain: own.domain,
            header,
            generation,
        })
    }

    fn set_tag(&self, domain: u32, header: u32, tag: u32) {
        let (at, shift) = self.tag_place(domain, header);
        let mut word = self.mem.load(at);
        loop {
            let with = word & !(0xFFFF_FFFF << shift) | u64::from(tag) << shift;
            match self.mem.cas(at, word, with) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }

    /// Writes the chain into the table slots: each names its chunk and the next slot.
    fn chain(&self, own: &Own, slots: &[u32]) {
        for (i, &local) in slots.iter().enumerate() {
            let chunk = own.chunk(local).unwrap_or(u32::MAX);
            let next = slots.get(i + 1).copied().unwrap_or(u32::MAX);
            let word = u64::from(chunk) | u64::from(next) << 32;
            self.mem.store(self.layout.table(own.domain, local), word);
        }
    }

    /// Copies one section of a reserved object in. Any process of the host may, once per section.
    ///
    /// # Errors
    /// [`Refusal::Gone`] when the reservation is not there (any more), or the buffers have another size.
    pub fn write(
        &self,
        place: Place,
        section: u32,
        buffers: Buffers,
        scratch: &mut Scratch,
    ) -> Result<(), Refusal> {
        self.write_by(place, section, || {
            let units = Units {
                section,
                ..Units::ALL
            };
            self.copy_section(place, units, buffers, scratch)
        })
    }

    /// [`Core::write`] of what `copy` stores.
    pub(crate) fn write_by(
        &self,
        place: Place,
        section: u32,
        copy: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let own = self.own_place(place).ok_or(Refusal::Gone)?;
        let entry = self.list_write(own, place).ok_or(Refusal::Full)?;
        // Only now: from here on whoever frees the chunks sees this entry, or this process sees the header let go.
        let result = self.write_section(place, section, copy);
        self.mem.store(entry, 0);
        result
    }

    /// The own domain, when `place` lies in it.
    fn own_place(&self, place: Place) -> Option<&Own> {
        let inside =
            |own: &&Own| own.domain == place.domain && place.header < self.layout.headers();
        self.own.as_ref().filter(inside)
    }

    fn write_section(
        &self,
        place: Place,
        section: u32,
        copy: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let own = self.own_place(place).ok_or(Refusal::Gone)?;
        let result = copy();
        let done = Progress(0).with(section % SECTIONS_MAX, result.is_ok());
        let at = self.layout.progress(own.domain, place.header);
        let mut word = self.mem.load(at);
        while Progress(word).is_of(place.generation) {
            match self.mem.cas(at, word, word | done.0) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        result
    }

    /// Copies units of a section in, which are then in memory as far as this thread is concerned.
    pub(crate) fn copy_section(
        &self,
        place: Place,
        units: Units,
        buffers: Buffers,
        scratch: &mut Scratch,
    ) -> Result<(), Refusal> {
        let own = self.own_place(place).ok_or(Refusal::Gone)?;
        let line = self.line(self.layout.header(own.domain, place.header));
        let header = Header::decode(&line);
        if !header.word.is(State::Writing) || header.word.generation() != place.generation {
            return Err(Refusal::Gone);
        }
        let count = units.of(header.units).ok_or(Refusal::Gone)?;
        let bytes = u64::from(count) * u64::from(header.unit_bytes);
        if units.section >= header.sections.into() || buffers.len() != bytes {
            return Err(Refusal::Gone);
        }
        self.follow_chain(own, place, &header, scratch)
            .ok_or(Refusal::Gone)?;
        if !self.mem.is_intact() {
            return Err(Refusal::Lost);
        }
        let first = u64::from(units.section) * u64::from(header.units) + u64::from(units.first);
        let shape = (u64::from(header.unit_bytes), header.unit_stride());
        let tiles =
            Tiles::new(&self.layout, &scratch.chunks, shape, first, count.into()).in_whole_chunks();
        let mut cursor = Cursor::new(buffers);
        let (mut crc, mut seen) = (0, 0);
        for tile in tiles {
            if tile.starts {
                crc = self.unit_seed(&header, tile.unit);
            }
            let mut done = 0;
            while done < tile.len {
                let piece = cursor
                    .take((tile.len - done) as usize)
                    .ok_or(Refusal::Gone)?;
                crc = self
                    .mem
                    .copy_in(tile.at + done, piece, crc)
                    .ok_or(Refusal::Gone)?;
                done += piece.len() as u64;
            }
            seen += done;
            if tile.ends {
                let entry = self
                    .unit_place(own, tile.unit, scratch)
                    .ok_or(Refusal::Gone)?;
                self.mem.store(entry, crc.into());
            }
        }
        // Every thread that stored, before it signals: nothing else orders non-temporal stores.
        self.mem.store_fence(Step::PayloadFence);
        if seen != bytes {
            return Err(Refusal::Gone);
        }
        if self.mem.is_intact() {
            Ok(())
        } else {
            Err(Refusal::Lost)
        }
    }

    /// Chunks and table slots of an own object into `scratch`, each checked against the domain.
    fn follow_chain(
        &self,
        own: &Own,
        place: Place,
        header: &Header,
        scratch: &mut Scratch,
    ) -> Option<()> {
        scratch.chunks.clear();
        scratch.slots.clear();
        let held = ChunkWord::held(place.header, place.generation);
        let mut slot = header.table;
        let slots = self.slots(header.total_units(), header.unit_stride());
        if slots > self.layout.geometry.domain_chunks.into() {
            return None; // a damaged size, and a chain that goes round would never end
        }
        for _ in 0..slots {
            let inside = slot < self.layout.geometry.domain_chunks;
            if !self.mem.judge(Check::ChainBounds, inside) {
                return None;
            }
            let word = self.mem.load(self.layout.chunk_word(own.domain, slot));
            if !self.mem.judge(Check::Held, word == held.0) {
                return None;
            }
            let next = self.mem.load(self.layout.table(own.domain, slot)) >> 32;
            scratch.chunks.push(own.chunk(slot)?);
            scratch.slots.push(slot);
            slot = next as u32;
        }
        Some(())
    }

    /// Place of a unit's checksum in the table.
    fn unit_place(&self, own: &Own, unit: u64, scratch: &Scratch) -> Option<u64> {
        let per_slot = self.layout.table_units();
        let slot = scratch.slots.get((unit / per_slot) as usize)?;
        Some(self.layout.table(own.domain, *slot) + 8 * (1 + unit % per_slot))
    }

    /// Publishes an object whose sections are all stored.
    ///
    /// # Errors
    /// [`Refusal::Gone`] when a section is missing or failed, or still being written (a second time), or the reservation
    /// is gone; the caller aborts.
    pub fn commit(&self, place: Place, scratch: &mut Scratch) -> Result<(), Refusal> {
        self.publish(place, true, scratch)
    }

    /// See [`Core::commit`]. Of a reservation that was given out, others may have begun a section anew.
    fn publish(&self, place: Place, is_shared: bool, scratch: &mut Scratch) -> Result<(), Refusal> {
        let own = self.own_place(place).ok_or(Refusal::Gone)?;
        let at = self.layout.header(own.domain, place.header);
        let mut header = Header::decode(&self.line(at));
        let progress = Progress(
            self.mem
                .load(self.layout.progress(own.domain, place.header)),
        );
        let complete = header.word.is(State::Writing)
            && header.word.generation() == place.generation
            && progress.is_of(place.generation)
            && progress.is_complete(header.sections.into());
        if !self.mem.judge(Check::Complete, complete) {
            return Err(Refusal::Gone);
        }
        self.follow_chain(own, place, &header, scratch)
            .ok_or(Refusal::Gone)?;
        header.table_crc = self.flush_table(own, place.generation, &scratch.slots);
        header.stored_seconds = self.age_seconds();
        let writing = header.word;
        // From here on the line is this process's alone: a reserver that gives up, its death and another commit all want
        // the word as it was. Without that a commit that stood still would go on in a line that is somebody else's.
        let leaving = HeaderWord::new(State::Leaving, own.process, place.generation);
        self.mem
            .cas(at, writing.0, leaving.0)
            .map_err(|_| Refusal::Gone)?;
        // Who begins now sees that the line is leaving. Who began before would go on in chunks that, once published, are
        // another object's after the next eviction.
        if is_shared && self.is_written(own, ChunkWord::held(place.header, place.generation)) {
            self.release(own, place.header, &self.line(at), |_| ());
            return Err(Refusal::Gone);
        }
        header.word = writing.to(State::Valid);
        let mut line = header.encode();
        line[7] = header::with_checksum(&line, self.header_crc(at, &line));
        self.flush(
            self.tag_place(own.domain, place.header).0,
            8,
            Step::TagFlush,
        );
        self.mem.store_fence(Step::CommitFence);
        for (i, word) in line.iter().enumerate().skip(1) {
            self.mem.store(at + 8 * i as u64, *word);
        }
        self.mark_stored(own, place.header);
        if !self.mem.is_intact() {
            return Err(Refusal::Lost); // nobody hears of it; whoever still sees the medium sweeps this process
        }
        self.mem
            .cas(at, leaving.0, line[0])
            .map_err(|_| Refusal::Gone)?;
        self.flush(at, LINE, Step::ValidFlush);
        self.mem.store_fence(Step::ValidFence);
        Ok(())
    }

    /// Checksum of the table, whose slots start their way to memory.
    fn flush_table(&self, own: &Own, generation: u64, slots: &[u32]) -> u32 {
        let mut crc = self.table_seed(generation);
        for &slot in slots {
            let at = self.layout.table(own.domain, slot);
            for line in (0..self.layout.table_bytes()).step_by(LINE as usize) {
                crc = self
                    .mem
                    .crc(crc, &header::line_bytes(&self.line(at + line)));
            }
            self.flush(at, self.layout.table_bytes(), Step::TableFlush);
        }
        crc
    }

    /// Gives a reservation up. Chunks that a live process still writes to stay held until it is done or dead.
    pub fn abort(&self, place: Place) {
        let Some(own) = self.own_place(place) else {
            return;
        };
        let line = self.line(self.layout.header(own.domain, place.header));
        let word = HeaderWord(line[0]);
        if word.is(State::Writing) && word.generation() == place.generation {
            let _ = self.release(own, place.header, &line, |_| ());
        }
    }
}
