//! Copying an object out and proving that the copy is the object.
//!
//! Order (software class, foreign domain): drop the header's line, fence, load it once, check -> fence, drop each table
//! slot, fence, load, check -> drop the payload one tile ahead, fence, copy -> fence, drop the header's line, fence,
//! load: valid or retired, all else equal -> the checksum of every unit. In the own domain and in the hardware class the
//! drops fall away and the fences stay. Whatever fails is a [`Miss`]; the destination is then undefined.

use crate::buffers::{Buffers, Cursor};
use crate::core::{Core, Place, Scratch};
use crate::digest::Digest;
use crate::header::{self, CRC32C, Header, Line};
use crate::layout::LINE;
use crate::memory::{Check, Memory, Step};
use crate::probe::{Accept, is_at};
use crate::stats::{Event, Miss};
use crate::tiles::Tiles;
use crate::words::{HeaderWord, State};

/// Bytes of a foreign domain that are dropped from the caches ahead of their copy: enough that the fence between two
/// batches costs little, few enough to overlap with the copy.
const AHEAD_BYTES: u64 = 256 << 10;

/// Which units of an object a read wants.
#[derive(Clone, Copy, Debug)]
pub struct Units {
    /// Section: the rank's, where ranks share an object.
    pub section: u32,
    /// First unit of that section.
    pub first: u32,
    /// How many; `None` = to the section's end.
    pub count: Option<u32>,
}

impl Units {
    /// Every unit of the first section.
    pub const ALL: Self = Self {
        section: 0,
        first: 0,
        count: None,
    };

    /// How many units this is of a section of `units`; `None` = there are not so many.
    pub(crate) fn of(self, units: u16) -> Option<u32> {
        let left = u32::from(units).checked_sub(self.first)?;
        self.count
            .map_or(Some(left), |count| (count <= left).then_some(count))
    }
}

impl<M: Memory> Core<M> {
    /// Copies units of the object under `key` into `buffers` and returns the bytes, all verified.
    ///
    /// # Errors
    /// The reason of the miss, already counted.
    pub fn get(
        &self,
        key: &Digest,
        units: Units,
        buffers: Buffers,
        scratch: &mut Scratch,
    ) -> Result<u64, Miss> {
        let located = if self.mem.is_intact() {
            self.locate(key, Accept::Readable).ok_or(Miss::Absent)
        } else {
            Err(Miss::Lost)
        };
        let result = located.and_then(|place| {
            let bytes = self.read(place, Some(key), units, buffers, scratch)?;
            self.used(place);
            Ok(bytes)
        });
        if let Err(miss) = result {
            self.stats.add(miss.into(), 1);
        }
        result
    }

    /// Copies units of the object at `place`. See [`Core::get`]; a miss is not counted here.
    ///
    /// # Errors
    /// The reason of the miss. An object that fails its checks while its header stands still is never found again.
    pub fn read(
        &self,
        place: Place,
        key: Option<&Digest>,
        units: Units,
        buffers: Buffers,
        scratch: &mut Scratch,
    ) -> Result<u64, Miss> {
        let result = self.read_part(place, key, units, buffers, scratch);
        if let Ok(bytes) = result {
            self.count_read(place, bytes);
        }
        result
    }

    /// Counts a read that was carried out in parts.
    pub(crate) fn count_read(&self, place: Place, bytes: u64) {
        self.stats.add(Event::Gets, 1);
        self.stats.add(Event::GetBytes, bytes);
        self.stats.hit(place.domain);
    }

    /// [`Core::read`] without counting: one of the parts of a read.
    pub(crate) fn read_part(
        &self,
        place: Place,
        key: Option<&Digest>,
        units: Units,
        buffers: Buffers,
        scratch: &mut Scratch,
    ) -> Result<u64, Miss> {
        let line = self.first_look(place);
        let result = self.check_header(place, key, &line).and_then(|header| {
            self.load_table(place.domain, &header, scratch)?;
            self.copy_units(place.domain, &header, units, buffers, scratch)
        });
        let stood_still = self.second_look(place, &line);
        let result = match result {
            Ok(_) | Err(Miss::UnitCrc) if !self.mem.judge(Check::Recheck, stood_still) => {
                Err(Miss::Changed)
            }
            other => other,
        };
        match result {
            // A hole that was met during the copy reads as zeros: the checksum failed for that reason.
            _ if !self.mem.is_intact() => return Err(Miss::Lost),
            Err(Miss::HeaderCrc | Miss::Epoch | Miss::Bounds | Miss::TableCrc | Miss::UnitCrc)
                if stood_still =>
            {
                self.condemn(place);
            }
            _ => {}
        }
        result
    }

    /// Marks an object as used, or has its owner do so.
    pub(crate) fn used(&self, place: Place) {
        if let Some(own) = &self.own
            && !self.is_fresh(own, place)
            && let Some(elsewhere) = self.touch(place, self.ticks(own.domain, 1))
        {
            self.tell_used(std::iter::once(elsewhere));
        }
    }

    /// The header's line, fresh, each word loaded once, the first one again at the end.
    pub(crate) fn first_look(&self, place: Place) -> Line {
        let at = self.layout.header(place.domain, place.header);
        if self.is_foreign(place.domain) {
            self.mem.invalidate(at, LINE, Step::HeaderInvalidate);
            self.mem.full_fence(Step::HeaderFence);
        }
        let mut line = self.line(at);
        if self.mem.load(at) != line[0] {
            line[0] = 0; // changed between two words: whatever this is, it is not the object
        }
        line
    }

    /// True when the header still names the same object: valid or retired, all else equal.
    pub(crate) fn second_look(&self, place: Place, first: &Line) -> bool {
        let at = self.layout.header(place.domain, place.header);
        self.mem.full_fence(Step::RecheckFenceBefore);
        if self.is_foreign(place.domain) {
            self.mem.invalidate(at, LINE, Step::RecheckInvalidate);
            self.mem.full_fence(Step::RecheckFence);
        }
        let line = self.line(at);
        let (now, then) = (HeaderWord(line[0]), HeaderWord(first[0]));
        (now.is(State::Valid) || now.is(State::Retired))
            && now.stable() == then.stable()
            && line[1..] == first[1..]
    }

    pub(crate) fn check_header(
        &self,
        place: Place,
        key: Option<&Digest>,
        line: &Line,
    ) -> Result<Header, Miss> {
        let header = Header::decode(line);
        if !self.mem.judge(Check::Generation, is_at(&header, place)) {
            return Err(Miss::Changed);
        }
        let at = self.layout.header(place.domain, place.header);
        let sound = self.header_crc(at, line) == header::checksum(line);
        if !self.mem.judge(Check::HeaderCrc, sound) {
            return Err(Miss::HeaderCrc);
        }
        let wanted = key
            .is_none_or(|key| (header.key_a, header.key_b, header.key_c) == (key.a, key.b, key.c));
        if !self.mem.judge(Check::SameKey, wanted) {
            return Err(Miss::Changed);
        }
        let current = header.epoch == self.identity.epoch as u32;
        if !self.mem.judge(Check::Epoch, current) {
            return Err(Miss::Epoch);
        }
        let slots = self.slots(header.total_units(), header.unit_stride());
        let possible = header.unit_bytes > 0
            && header.total_units() > 0
            && header.algorithm == CRC32C
            && slots <= u64::from(self.layout.geometry.domain_chunks);
        if !self.mem.judge(Check::HeaderBounds, possible) {
            return Err(Miss::Bounds);
        }
        Ok(header)
    }

    /// Loads the table into `scratch` and checks it against the header. Exactly as many slots are followed as the
    /// object's size asks for, so that a damaged chain cannot be endless.
    pub(crate) fn load_table(
        &self,
        domain: u32,
        header: &Header,
        scratch: &mut Scratch,
    ) -> Result<(), Miss> {
        let foreign = self.is_foreign(domain);
        scratch.chunks.clear();
        scratch.table.clear();
        let mut crc = self.table_seed(header.word.generation());
        let mut slot = header.table;
        for _ in 0..self.slots(header.total_units(), header.unit_stride()) {
            if !self
                .mem
                .judge(Check::SlotBounds, slot < self.layout.geometry.domain_chunks)
            {
                return Err(Miss::Bounds);
            }
            let at = self.layout.table(domain, slot);
            self.mem.full_fence(Step::TableFenceBefore);
            if foreign {
                self.mem
                    .invalidate(at, self.layout.table_bytes(), Step::TableInvalidate);
                self.mem.full_fence(Step::TableFence);
            }
            let start = scratch.table.len();
            for line in (0..self.layout.table_bytes()).step_by(LINE as usize) {
                let line = self.line(at + line);
                crc = self.mem.crc(crc, &header::line_bytes(&line));
                scratch.table.extend_from_slice(&line);
            }
            let head = scratch.table[start];
            scratch.chunks.push(head as u32);
            slot = (head >> 32) as u32;
        }
        if !self.mem.judge(Check::TableCrc, crc == header.table_crc) {
            return Err(Miss::TableCrc);
        }
        let inside = scratch
            .chunks
            .iter()
            .all(|&chunk| chunk < self.layout.chunks);
        if !self.mem.judge(Check::ChunkBounds, inside) {
            return Err(Miss::Bounds);
        }
        Ok(())
    }

    fn copy_units(
        &self,
        domain: u32,
        header: &Header,
        units: Units,
        buffers: Buffers,
        scratch: &Scratch,
    ) -> Result<u64, Miss> {
        let count = units.of(header.units).ok_or(Miss::Size)?;
        let bytes = u64::from(count) * u64::from(header.unit_bytes);
        if count == 0 || units.section >= header.sections.into() || !buffers.takes(bytes) {
            return Err(Miss::Size);
        }
        let first = u64::from(units.section) * u64::from(header.units) + u64::from(units.first);
        let shape = (u64::from(header.unit_bytes), header.unit_stride());
        let tiles = || Tiles::new(&self.layout, &scratch.chunks, shape, first, count.into());
        let mut ahead = self.is_foreign(domain).then(tiles);
        let mut left = self.drop_batch(ahead.as_mut());
        self.mem.full_fence(Step::CopyFence);
        let mut next = self.drop_batch(ahead.as_mut());
        let mut cursor = Cursor::new(buffers);
        let (mut crc, mut seen) = (0, 0);
        let walked = match ahead {
            Some(_) => tiles(),
            None => tiles().in_whole_chunks(),
        };
        for tile in walked {
            if left == 0 && next > 0 {
                self.mem.full_fence(Step::BatchFence);
                left = std::mem::replace(&mut next, self.drop_batch(ahead.as_mut()));
            }
            left = left.saturating_sub(1);
            if tile.starts {
                crc = self.unit_seed(header, tile.unit);
            }
            let mut done = 0;
            while done < tile.len {
                let piece = cursor.take((tile.len - done) as usize).ok_or(Miss::Size)?;
                crc = self
                    .mem
                    .copy_out(tile.at + done, piece, crc, bytes)
                    .ok_or(Miss::Bounds)?;
                done += piece.len() as u64;
            }
            seen += done;
            let expected = self.unit_crc(tile.unit, scratch);
            if tile.ends && !self.mem.judge(Check::UnitCrc, u64::from(crc) == expected) {
                return Err(Miss::UnitCrc);
            }
        }
        if seen == bytes {
            Ok(bytes)
        } else {
            Err(Miss::Bounds)
        }
    }

    /// Starts dropping the lines of the next tiles of a foreign domain; returns how many tiles. They may be loaded after
    /// the next full fence.
    fn drop_batch(&self, tiles: Option<&mut Tiles>) -> usize {
        let (mut count, mut bytes) = (0, 0);
        let Some(tiles) = tiles else { return 0 };
        let batch = AHEAD_BYTES.min(self.layout.geometry.chunk_bytes);
        while bytes < batch
            && let Some(tile) = tiles.next()
        {
            self.mem
                .invalidate(tile.at, tile.len, Step::PayloadInvalidate);
            bytes += tile.len;
            count += 1;
        }
        count
    }

    /// Checksum of a unit as the table has it: the upper half is reserved and must be zero.
    pub(crate) fn unit_crc(&self, unit: u64, scratch: &Scratch) -> u64 {
        let per_slot = self.layout.table_units();
        let words = self.layout.table_bytes() / 8;
        let index = unit / per_slot * words + 1 + unit % per_slot;
        scratch
            .table
            .get(index as usize)
            .copied()
            .unwrap_or(u64::MAX)
    }

    /// An object failed its checks and stood still: the own domain drops it, another domain's is remembered.
    pub(crate) fn condemn(&self, place: Place) {
        match &self.own {
            Some(own) if own.domain == place.domain => {
                if self.discard(place) {
                    self.stats.add(Event::DroppedDamaged, 1);
                }
            }
            _ => self.quarantine(place),
        }
    }
}
