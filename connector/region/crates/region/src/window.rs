//! The raw bytes of a reserved object, for benchmarks: plain copies to and from the very memory that objects lie in.

use crate::buffers::{Buffers, Cursor};
use crate::core::Place;
use crate::header::Header;
use crate::memory::Memory;
use crate::region::Live;
use crate::words::{HeaderWord, State};
use hymcache_copy::bare::Bare;

/// Where the bytes of an object lie that this process has reserved and not committed.
pub struct Window {
    place: Place,
    ranges: Vec<(u64, u64)>,
    bytes: u64,
}

impl Window {
    /// Bytes of the object.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Live {
    /// The window on a reservation of one section of one unit; `None` when `place` is none of this process.
    pub fn window(&self, place: Place) -> Option<Window> {
        if !self.is_intact() || !self.core().is_place(place) || !self.is_reserved(place) {
            return None;
        }
        let core = self.core();
        let line = core.line(core.layout.header(place.domain, place.header));
        let header = Header::decode(&line);
        let bytes = u64::from(header.unit_bytes);
        let (mut ranges, mut left, mut slot) = (Vec::new(), bytes, header.table);
        while header.total_units() == 1 && left > 0 && slot < core.layout.geometry.domain_chunks {
            let word = core.mem.load(core.layout.table(place.domain, slot));
            let len = left.min(core.layout.geometry.chunk_bytes);
            ranges.push((core.layout.chunk(word as u32), len));
            left -= len;
            slot = (word >> 32) as u32;
        }
        (left == 0).then_some(Window {
            place,
            ranges,
            bytes,
        })
    }

    /// Copies the window to `buffers`, or `buffers` to the window. False when the reservation is gone, the sizes differ, or
    /// a piece is not what bare copies need: a multiple of 256 bytes at a multiple of 64.
    pub fn bare(&self, window: &Window, copy: &Bare, buffers: Buffers, into_region: bool) -> bool {
        if !self.is_intact() || buffers.len() != window.bytes {
            return false;
        }
        let core = self.core();
        let own = core.own.as_ref();
        let Some(entry) = own.and_then(|own| core.list_write(own, window.place)) else {
            return false;
        };
        // Only now: another thread that gives the reservation up sees this entry, or this one that it is gone.
        let done =
            self.is_reserved(window.place) && self.copy_bare(window, copy, buffers, into_region);
        core.mem.store(entry, 0);
        done
    }

    fn copy_bare(&self, window: &Window, copy: &Bare, buffers: Buffers, into_region: bool) -> bool {
        let mut cursor = Cursor::new(buffers);
        for &(at, len) in &window.ranges {
            let mut done = 0;
            while done < len {
                let Some(piece) = cursor.take((len - done) as usize) else {
                    return false;
                };
                let Some(region) = self.core().mem.range(at + done, piece.len() as u64) else {
                    return false;
                };
                if !(piece.address() as usize).is_multiple_of(64)
                    || !piece.len().is_multiple_of(256)
                {
                    return false;
                }
                let (to, from) = if into_region {
                    (region, piece.address())
                } else {
                    (piece.address(), region)
                };
                // SAFETY: the range lies in the mapping, the piece is vouched for by its maker; they do not overlap, as
                // nobody outside this crate gets the mapping's address. Alignment and length were checked; chunks are
                // aligned to lines, and pieces before this one were multiples of 256. The chunks are this write's
                // for as long as it is listed.
                unsafe { (copy.copy)(to, from.cast_const(), piece.len()) };
                done += piece.len() as u64;
            }
        }
        true
    }

    fn is_reserved(&self, place: Place) -> bool {
        let core = self.core();
        core.own.as_ref().is_some_and(|own| {
            let word = HeaderWord(
                core.mem
                    .load(core.layout.header(place.domain, place.header)),
            );
            own.domain == place.domain
                && word == HeaderWord::new(State::Writing, own.process, place.generation)
        })
    }
}
