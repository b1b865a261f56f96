//! What is copied: objects cut into pieces, from engine memory to a region or back.

use crate::memory::Memory;
use hymcache_copy::{Medium, Piece, line};
use std::io::Result;

/// Bytes each side of a benchmark rotates through, several times any last-level cache we can escape.
pub(crate) const WORKING_SET: usize = 256 << 20;
/// Engine buffers are not aligned to the region's slots by 2 MiB: such an alignment halves memcpy on some CPUs, and a
/// comparison with that would flatter us.
const SKEW: usize = 12_352;

/// One row of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Engine to a region slot that has been written before.
    Put,
    /// Engine to a slot of a populated region that nobody has written.
    PutFresh,
    /// Region to engine.
    Get,
    /// Region of another host without coherence to engine.
    GetForeign,
}

impl Direction {
    pub(crate) const ALL: [Self; 4] = [Self::Put, Self::PutFresh, Self::Get, Self::GetForeign];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::PutFresh => "put-fresh",
            Self::Get => "get",
            Self::GetForeign => "get-foreign",
        }
    }

    pub(crate) fn is_put(self) -> bool {
        matches!(self, Self::Put | Self::PutFresh)
    }
}

/// One object: its pieces in order and the CRC of their source.
pub(crate) struct Object {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) crc: u32,
}

impl Object {
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(|p| p.len).sum()
    }

    /// Damages the destination here and there, so that the next copy is not taken for right without having been made.
    pub(crate) fn spoil(&self) {
        for piece in &self.pieces {
            for offset in (0..piece.len).step_by(4096) {
                // SAFETY: inside the piece, which no other thread uses now.
                unsafe {
                    *piece.dst.add(offset) ^= 0xFF;
                    line::flush_range(piece.dst.add(offset), 1);
                }
            }
        }
    }

    /// The same object with another, contiguous destination.
    pub(crate) fn moved_to(&self, start: *mut u8) -> Self {
        let place = |(offset, piece): (usize, &Piece)| Piece {
            dst: start.wrapping_add(offset),
            ..*piece
        };
        let offsets = self
            .pieces
            .iter()
            .scan(0, |next, p| Some(std::mem::replace(next, *next + p.len)));
        Self {
            pieces: offsets.zip(&self.pieces).map(place).collect(),
            crc: self.crc,
        }
    }

    /// True when every destination byte equals its source byte.
    pub(crate) fn arrived(&self) -> bool {
        // SAFETY: pieces lie in live mappings of this process, which no other thread writes now.
        self.pieces.iter().all(|p| unsafe {
            std::slice::from_raw_parts(p.dst, p.len) == std::slice::from_raw_parts(p.src, p.len)
        })
    }
}

/// Both sides of a benchmark.
pub(crate) struct Sides {
    engine: Memory,
    region: Memory,
}

impl Sides {
    pub(crate) fn new() -> Result<Self> {
        let engine = Memory::engine(WORKING_SET + (1 << 20))?;
        let region = Memory::region(WORKING_SET)?;
        engine.fill(1);
        region.fill(2);
        Ok(Self { engine, region })
    }

    /// Every object of one size. `page_bytes` below the object's size scatters it over the engine's memory in pages.
    pub(crate) fn objects(
        &self,
        direction: Direction,
        object_bytes: usize,
        page_bytes: usize,
    ) -> Vec<Object> {
        let page = page_bytes.min(object_bytes);
        let pages = WORKING_SET / page;
        let place = |index: usize| {
            if page < object_bytes {
                index * 7919 % pages
            } else {
                index
            }
        };
        let objects = WORKING_SET / object_bytes;
        (0..objects)
            .map(|i| self.object(direction, i * object_bytes, object_bytes, page, place))
            .collect()
    }

    fn object(
        &self,
        direction: Direction,
        slot: usize,
        bytes: usize,
        page: usize,
        place: impl Fn(usize) -> usize,
    ) -> Object {
        let piece = |offset: usize| {
            let engine = self.engine.at(SKEW + place((slot + offset) / page) * page);
            let region = self.region.at(slot + offset);
            let (dst, src) = if direction.is_put() {
                (region, engine)
            } else {
                (engine, region)
            };
            Piece {
                dst,
                src: src.cast_const(),
                len: page,
            }
        };
        let pieces: Vec<Piece> = (0..bytes).step_by(page).map(piece).collect();
        // SAFETY: pieces lie in live mappings.
        let crc = pieces.iter().fold(0, |crc, p| unsafe {
            hymcache_copy::crc32c(crc, std::slice::from_raw_parts(p.src, p.len))
        });
        Object { pieces, crc }
    }

    /// The region as a calibration sees it.
    pub(crate) fn medium(&self) -> Medium<'static> {
        let half = WORKING_SET / 2;
        let readable = std::ptr::slice_from_raw_parts(self.region.at(0).cast_const(), half);
        let scratch = std::ptr::slice_from_raw_parts_mut(self.region.at(half), half);
        Medium {
            name: "dram",
            readable,
            scratch: Some(scratch),
        }
    }
}
