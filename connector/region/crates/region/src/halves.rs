//! Large objects copied by two threads at once.
//!
//! Each thread takes half of the units and does for them all that one thread does for an object: a reader looks at the
//! header twice and verifies what it copied, a writer fences its own stores. So nothing is asked of the protocol but
//! that units can be had one by one; objects of one unit are copied by one thread. A read that is not whole and sound
//! in halves is read again by one thread, which then knows why.

use crate::buffers::{Buffers, Piece};
use crate::core::{Place, Scratch};
use crate::digest::Digest;
use crate::header::Header;
use crate::read::Units;
use crate::region::{Live, SCRATCH};
use crate::stats::Refusal;
use std::thread;

/// Least bytes for two threads: a thread costs what one thread copies in about 20 us.
const SHARED_BYTES_MIN: u64 = 4 << 20;

/// Units in two, where the second begins in the stream, and the stream in two.
struct Halves<'a> {
    units: [Units; 2],
    cut: u64,
    buffers: [Buffers<'a>; 2],
}

impl Live {
    /// True when this many bytes are worth two threads and the region was attached with them.
    pub(crate) const fn shares(&self, bytes: u64) -> bool {
        self.copy_threads > 1 && bytes >= SHARED_BYTES_MIN
    }

    /// Reads an object in halves; `None` when that did not succeed or is not worth it.
    pub(crate) fn read_halves(
        &self,
        place: Place,
        key: Option<&Digest>,
        units: Units,
        buffers: Buffers,
    ) -> Option<u64> {
        let mut pieces = Default::default();
        let halves = self.halves(place, units, buffers, &mut pieces)?;
        let read = |half: usize, scratch: &mut Scratch| {
            let (units, buffers) = (halves.units[half], halves.buffers[half]);
            let read = self.core().read_part(place, key, units, buffers, scratch);
            read.ok()
        };
        let [first, second] = self.both(None, &read).map(Option::flatten);
        let bytes = first.filter(|&bytes| bytes == halves.cut)? + second?;
        self.core().count_read(place, bytes);
        Some(bytes)
    }

    /// Copies one section of a reserved object in, in halves where it is large.
    ///
    /// # Errors
    /// As one thread's.
    pub(crate) fn copy_in_halves(
        &self,
        place: Place,
        section: u32,
        buffers: Buffers,
        scratch: &mut Scratch,
    ) -> Result<(), Refusal> {
        let units = Units {
            section,
            ..Units::ALL
        };
        let mut pieces = Default::default();
        let Some(halves) = self.halves(place, units, buffers, &mut pieces) else {
            return self.core().copy_section(place, units, buffers, scratch);
        };
        let copy = |half: usize, scratch: &mut Scratch| {
            let (units, buffers) = (halves.units[half], halves.buffers[half]);
            self.core().copy_section(place, units, buffers, scratch)
        };
        let [first, second] = self.both(Some(scratch), &copy);
        first
            .unwrap_or(Err(Refusal::Lost))
            .and(second.unwrap_or(Err(Refusal::Lost)))
    }

    /// How to halve the units of an object. Its header is a hint here: whoever copies checks.
    fn halves<'a>(
        &self,
        place: Place,
        units: Units,
        buffers: Buffers<'a>,
        pieces: &'a mut [Vec<Piece>; 2],
    ) -> Option<Halves<'a>> {
        if !self.shares(buffers.len()) {
            return None;
        }
        let core = self.core();
        let header = Header::decode(&core.line(core.layout.header(place.domain, place.header)));
        let count = units.of(header.units)?;
        let bytes = u64::from(count) * u64::from(header.unit_bytes);
        if header.word.generation() != place.generation || count < 2 || !self.shares(bytes) {
            return None;
        }
        let half = count / 2;
        let cut = u64::from(half) * u64::from(header.unit_bytes);
        let first = Units {
            count: Some(half),
            ..units
        };
        let second = Units {
            first: units.first + half,
            count: Some(count - half),
            ..units
        };
        Some(Halves {
            units: [first, second],
            cut,
            buffers: buffers.cut(cut, pieces)?,
        })
    }

    /// Does both halves at once, the second in a thread of its own, or one after the other where none can be had. `None`
    /// for a half whose thread found the region lost.
    fn both<T: Send>(
        &self,
        scratch: Option<&mut Scratch>,
        work: &(impl Fn(usize, &mut Scratch) -> T + Sync),
    ) -> [Option<T>; 2] {
        let second = || {
            let mut scratch = Scratch::default();
            self.ready().then(|| work(1, &mut scratch))
        };
        thread::scope(|scope| {
            let named = thread::Builder::new().name("hymcache-copy".into());
            let helper = named.spawn_scoped(scope, second);
            let first = match scratch {
                Some(scratch) => work(0, scratch),
                None => SCRATCH.with_borrow_mut(|scratch| work(0, scratch)),
            };
            let other = match helper {
                Ok(helper) => helper
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(_) => second(),
            };
            [Some(first), other]
        })
    }
}
