//! Looking at an object where it lies, without a copy.
//!
//! What a view shows may change under its reader at any time. Whoever reads it asks afterwards whether the header still
//! names the object ([`Core::is_still`]): then its bytes stood still all the while, as far as order goes, and
//! [`Core::is_sound`] compares them with their checksums. A view of another host's domain drops its range from the caches
//! first.

use crate::buffers::Piece;
use crate::core::{Core, Place, Scratch};
use crate::digest::Digest;
use crate::header::{Header, Line};
use crate::memory::{Check, Memory, Step};
use crate::probe::Accept;
use crate::stats::{Event, Miss};
use crate::tiles::Tiles;

/// Bytes that are hashed at a time: they stay in the first caches.
const HASH_BYTES: u64 = 16 << 10;

/// An object as its header and table had it.
#[derive(Clone, Debug)]
pub struct Sight {
    place: Place,
    line: Line,
    table: Scratch,
    /// Places and lengths of its bytes, in order; neighbours are one part.
    pub parts: Vec<(u64, u64)>,
}

impl Sight {
    /// Bytes of the object.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|&(_, len)| len).sum()
    }
}

impl<M: Memory> Core<M> {
    /// Finds the object under `key` and where its bytes lie. Nothing of its payload is verified.
    ///
    /// # Errors
    /// The reason of the miss, already counted.
    pub fn view(&self, key: &Digest) -> Result<Sight, Miss> {
        let located = if self.mem.is_intact() {
            self.locate(key, Accept::Readable).ok_or(Miss::Absent)
        } else {
            Err(Miss::Lost)
        };
        let result = located.and_then(|place| {
            let line = self.first_look(place);
            let result = self.look_at(place, key, line);
            if matches!(
                result,
                Err(Miss::HeaderCrc | Miss::Epoch | Miss::Bounds | Miss::TableCrc)
            ) && self.second_look(place, &line)
                && self.mem.is_intact()
            {
                self.condemn(place);
            }
            result
        });
        match &result {
            Ok(sight) => {
                self.used(sight.place);
                self.stats.add(Event::Views, 1);
                self.stats.hit(sight.place.domain);
            }
            Err(miss) => self.stats.add((*miss).into(), 1),
        }
        result
    }

    fn look_at(&self, place: Place, key: &Digest, line: Line) -> Result<Sight, Miss> {
        let header = self.check_header(place, Some(key), &line)?;
        let mut table = Scratch::default();
        self.load_table(place.domain, &header, &mut table)?;
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for tile in self.tiles(&header, &table) {
            // Every chunk number was compared with the region's, so the tile lies in it; asked again all the same, as
            // the address is given away.
            let inside = tile.at.checked_add(tile.len);
            if inside.is_none_or(|end| end > self.layout.geometry.bytes) {
                return Err(Miss::Bounds);
            }
            match parts.last_mut() {
                Some((at, len)) if *at + *len == tile.at => *len += tile.len,
                _ => parts.push((tile.at, tile.len)),
            }
        }
        if self.is_foreign(place.domain) {
            for &(at, len) in &parts {
                self.mem.invalidate(at, len, Step::PayloadInvalidate);
            }
        }
        self.mem.full_fence(Step::CopyFence);
        let sight = Sight {
            place,
            line,
            table,
            parts,
        };
        if self.is_still(&sight) {
            Ok(sight)
        } else {
            Err(Miss::Changed)
        }
    }

    fn tiles<'a>(&'a self, header: &Header, table: &'a Scratch) -> Tiles<'a> {
        let shape = (u64::from(header.unit_bytes), header.unit_stride());
        Tiles::new(&self.layout, &table.chunks, shape, 0, header.total_units())
    }

    /// True when the header still names the object: what was loaded from the view before this call are its bytes.
    pub fn is_still(&self, sight: &Sight) -> bool {
        let stood_still = self.second_look(sight.place, &sight.line);
        self.mem.judge(Check::Recheck, stood_still) && self.mem.is_intact()
    }

    /// True when every unit has its checksum, and the header still names the object.
    pub fn is_sound(&self, sight: &Sight) -> bool {
        let header = Header::decode(&sight.line);
        let mut private = vec![0; HASH_BYTES as usize];
        let mut crc = 0;
        for tile in self.tiles(&header, &sight.table) {
            if tile.starts {
                crc = self.unit_seed(&header, tile.unit);
            }
            let mut done = 0;
            while done < tile.len {
                let part = HASH_BYTES.min(tile.len - done);
                // SAFETY: the vector outlives the call, and nobody else has it.
                let piece = unsafe { Piece::new(private.as_mut_ptr(), part as usize) };
                match self.mem.copy_out(tile.at + done, piece, crc, part) {
                    Some(next) => crc = next,
                    None => return false,
                }
                done += part;
            }
            let expected = self.unit_crc(tile.unit, &sight.table);
            if tile.ends && !self.mem.judge(Check::UnitCrc, u64::from(crc) == expected) {
                if self.is_still(sight) {
                    self.stats.add(Event::MissUnitCrc, 1);
                    self.condemn(sight.place);
                }
                return false;
            }
        }
        self.is_still(sight)
    }
}
