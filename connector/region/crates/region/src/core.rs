//! The state every operation shares: memory, places, identity, and the domain this process writes.
//!
//! Operations are grouped by what they know: [`crate::probe`] finds, [`crate::read`] copies out,
//! [`crate::view`] looks without a copy, [`crate::write`] stores,
//! [`crate::evict`] makes room, [`crate::sweep`] takes back what the dead left.

use crate::evict::Owner;
use crate::header::{self, Header, Line};
use crate::layout::{Counter, Layout};
use crate::memory::{Memory, Step};
use crate::stats::Stats;
use crate::touch::Touches;
use crate::uses::Descent;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a region is called, and how its hosts see one another's stores.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Identity of the region.
    pub uuid: [u8; 16],
    /// Rises with every format.
    pub epoch: u64,
    /// True where hosts must flush and invalidate.
    pub software: bool,
    /// When it was formatted, in seconds since 1970.
    pub formatted_seconds: u64,
}

/// Consecutive chunks that a domain holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of the first one inside the domain.
    pub local: u32,
    /// Number of the first one in the region.
    pub chunk: u32,
    /// How many.
    pub count: u32,
}

/// The domain this process stores into, and its place there.
#[derive(Clone, Debug)]
pub struct Own {
    /// Domain number.
    pub domain: u32,
    /// Process slot.
    pub process: u32,
    /// The domain's chunks.
    pub extents: Vec<Extent>,
}

impl Own {
    /// Number in the region of one of the domain's chunks.
    pub(crate) fn chunk(&self, local: u32) -> Option<u32> {
        self.extents
            .iter()
            .find(|e| local.wrapping_sub(e.local) < e.count)
            .map(|e| e.chunk + (local - e.local))
    }
}

/// An object at a place: what a lookup finds and a read verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Domain.
    pub domain: u32,
    /// Header line inside the domain.
    pub header: u32,
    /// Generation of that line.
    pub generation: u64,
}

/// Private memory of one call, reused from call to call so that none allocates in the long run.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Numbers of an object's chunks in the region, in order.
    pub chunks: Vec<u32>,
    /// Table slots of an object, in order.
    pub slots: Vec<u32>,
    /// Words of the table, slot by slot.
    pub table: Vec<u64>,
}

/// One region as one process sees it.
pub struct Core<M> {
    /// The mapping, or a model of it.
    pub mem: M,
    /// Places.
    pub layout: Layout,
    /// Identity.
    pub identity: Identity,
    /// What this process writes; `None` when attached read-only.
    pub own: Option<Own>,
    /// Counters.
    pub stats: Stats,
    /// Milliseconds since 1970, coarse: for hints and reports, never for safety.
    pub now_ms: fn() -> u64,
    seed: u32,
    owner: Mutex<Owner>,
    touches: Mutex<Touches>,
    pub(crate) descent: Descent,
}

impl<M: Memory> Core<M> {
    /// Wraps a formatted memory.
    pub fn new(
        mem: M,
        layout: Layout,
        identity: Identity,
        own: Option<Own>,
        now_ms: fn() -> u64,
    ) -> Self {
        let mut named = [0; 24];
        named[..16].copy_from_slice(&identity.uuid);
        named[16..].copy_from_slice(&identity.epoch.to_le_bytes());
        let seed = mem.crc(0, &named);
        let owner = Mutex::new(Owner::new(&layout));
        Self {
            mem,
            layout,
            identity,
            own,
            stats: Stats::default(),
            now_ms,
            seed,
            owner,
            touches: Mutex::default(),
            descent: Descent::default(),
        }
    }

    /// True when the domain's lines may be stale in this host's caches.
    pub(crate) fn is_foreign(&self, domain: u32) -> bool {
        self.identity.software && self.own.as_ref().is_none_or(|own| own.domain != domain)
    }

    /// Domains in lookup order: the own one, then the others by number.
    pub(crate) fn domains(&self) -> impl Iterator<Item = u32> + use<M> {
        let own = self.own.as_ref().map(|own| own.domain);
        let others = (0..self.layout.geometry.domains).filter(move |&d| Some(d) != own);
        own.into_iter().chain(others)
    }

    /// Flushes a range of the own domain where other hosts would not see it otherwise.
    #[inline]
    pub(crate) fn flush(&self, at: u64, len: u64, step: Step) {
        if self.identity.software {
            self.mem.flush(at, len, step);
        }
    }

    /// State of eviction in this process. A panic elsewhere leaves hints at worst, so a poisoned lock is taken over.
    pub(crate) fn owner(&self) -> MutexGuard<'_, Owner> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses of other domains' objects that are not in the ring yet.
    pub(crate) fn touches(&self) -> MutexGuard<'_, Touches> {
        self.touches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads a line once, lowest word first.
    #[inline]
    pub(crate) fn line(&self, at: u64) -> Line {
        std::array::from_fn(|i| self.mem.load(at + 8 * i as u64))
    }

    /// Next ticks of recency in the own domain, `n` of them; the first is returned.
    pub(crate) fn ticks(&self, domain: u32, n: u64) -> u64 {
        let clock = self.layout.counter(domain, Counter::Clock);
        self.mem.add(clock, n).wrapping_add(1)
    }

    /// Seconds from format to now.
    pub(crate) fn age_seconds(&self) -> u32 {
        ((self.now_ms)() / 1000).saturating_sub(self.identity.formatted_seconds) as u32
    }

    /// CRC32C of private bytes, continued from the region's own.
    pub(crate) fn seeded_crc(&self, bytes: &[u8]) -> u32 {
        self.mem.crc(self.seed, bytes)
    }

    /// The checksum a header line at this place should have.
    pub(crate) fn header_crc(&self, place: u64, line: &Line) -> u32 {
        self.mem.crc(self.seed, &header::checked_bytes(place, line))
    }

    /// Where the checksum of a table starts.
    pub(crate) fn table_seed(&self, generation: u64) -> u32 {
        self.mem.crc(self.seed, &generation.to_le_bytes())
    }

    /// Where the checksum of unit `index` (over all sections) starts: bound to key, generation and index.
    pub(crate) fn unit_seed(&self, header: &Header, index: u64) -> u32 {
        let mut bytes = [0; 36];
        bytes[..8].copy_from_slice(&header.key_a.to_le_bytes());
        bytes[8..16].copy_from_slice(&header.key_b.to_le_bytes());
        bytes[16..20].copy_from_slice(&header.key_c.to_le_bytes());
        bytes[20..28].copy_from_slice(&header.word.generation().to_le_bytes());
        bytes[28..].copy_from_slice(&index.to_le_bytes());
        self.mem.crc(self.seed, &bytes)
    }

    /// Table slots, hence chunks, that an object of these units takes: bytes and unit checksums both have to fit.
    pub fn slots(&self, total_units: u64, unit_stride: u64) -> u64 {
        let by_bytes = total_units
            .saturating_mul(unit_stride)
            .div_ceil(self.layout.geometry.chunk_bytes);
        by_bytes
            .max(total_units.div_ceil(self.layout.table_units()))
            .max(1)
    }
}
