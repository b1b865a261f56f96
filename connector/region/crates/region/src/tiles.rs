//! The bytes of an object in the order of its units, cut where chunks end: what the copy loops walk.

use crate::layout::Layout;

/// Most bytes in a tile of another host's: small enough that a tile dropped from the caches one ahead costs no wait, large
/// enough that a fence per tile costs nothing.
const TILE_BYTES: u64 = 256 << 10;

/// A run of an object's bytes inside one chunk and one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Place in the region.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// Unit, counted over all sections.
    pub unit: u64,
    /// First of its unit.
    pub starts: bool,
    /// Last of its unit.
    pub ends: bool,
}

/// Walks units `first..first + count` of an object whose chunks are `chunks`.
pub struct Tiles<'a> {
    layout: &'a Layout,
    chunks: &'a [u32],
    unit_bytes: u64,
    stride: u64,
    unit: u64,
    end: u64,
    done: u64,
    most: u64,
}

impl<'a> Tiles<'a> {
    /// At the start of unit `first`.
    pub const fn new(
        layout: &'a Layout,
        chunks: &'a [u32],
        (unit_bytes, stride): (u64, u64),
        first: u64,
        count: u64,
    ) -> Self {
        Self {
            layout,
            chunks,
            unit_bytes,
            stride,
            unit: first,
            end: first + count,
            done: 0,
            most: TILE_BYTES,
        }
    }

    /// The same in tiles that only chunks and units bound, for memory of which nothing is dropped from the caches: some
    /// copy loops hash the end of each run slowly.
    #[must_use]
    pub const fn in_whole_chunks(self) -> Self {
        Self {
            most: u64::MAX,
            ..self
        }
    }
}

impl Iterator for Tiles<'_> {
    type Item = Tile;

    /// `None` at the end, or where the chunk list is too short.
    #[inline]
    fn next(&mut self) -> Option<Tile> {
        if self.unit >= self.end {
            return None;
        }
        let chunk_bytes = self.layout.geometry.chunk_bytes;
        let offset = self.unit * self.stride + self.done;
        let chunk = *self.chunks.get((offset / chunk_bytes) as usize)?;
        let within = offset % chunk_bytes;
        let len = (self.unit_bytes - self.done)
            .min(chunk_bytes - within)
            .min(self.most);
        let tile = Tile {
            at: self.layout.chunk(chunk) + within,
            len,
            unit: self.unit,
            starts: self.done == 0,
            ends: self.done + len == self.unit_bytes,
        };
        self.done += len;
        if tile.ends {
            self.unit += 1;
            self.done = 0;
        }
        Some(tile)
    }
}
