//! Counters of one process: what it asked the region for, and why it got nothing.

use crate::layout::DOMAINS_MAX;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a read got nothing. Each is a miss to the caller and a counter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No domain has the key.
    Absent,

    /// A header whose checksum does not hold.
    HeaderCrc,
    /// A header of another epoch.
    Epoch,
    /// An offset, length or count outside the region.
    Bounds,
    /// A table whose checksum does not hold.
    TableCrc,
    /// The object was evicted or replaced during the read.
    Changed,
    /// A unit whose checksum does not hold.
    UnitCrc,
    /// The caller's buffers have another size than the units asked for.
    Size,
    /// The region met a hole in its medium, was formatted anew, or belongs to the parent of this process.
    Lost,
}

/// Why a put stored nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A domain has the key already: nothing to do.
    Exists,
    /// Another process of this host is storing it.
    Pending,
    /// No room, and nothing that may be evicted.
    Full,
    /// Larger than the whole domain.
    TooLarge,
    /// The process attached read-only.
    ReadOnly,
    /// As [`Miss::Lost`].
    Lost,
    /// The reservation is gone: aborted, swept, or never complete.
    Gone,
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event { $($(#[$doc])* $name,)* }
        const NAMES: &[&str] = &[$($text,)*];
    };
}

events! {
    /// Keys looked up.
    LookupKeys => "lookup_keys",
    /// Keys found by lookups.
    LookupHits => "lookup_hits",
    /// Reads that returned bytes.
    Gets => "gets",
    /// Bytes read and verified.
    GetBytes => "get_bytes",
    /// Objects looked at in place.
    Views => "views",
    /// Objects stored.
    Puts => "puts",
    /// Bytes stored.
    PutBytes => "put_bytes",
    /// Objects retired to make room.
    Evictions => "evictions",
    /// Objects evicted because both sets of a key were full.
    ConflictEvictions => "conflict_evictions",
    /// Headers taken back from dead processes.
    ReclaimedHeaders => "reclaimed_headers",
    /// Chunks taken back from dead processes.
    ReclaimedChunks => "reclaimed_chunks",
    /// Process slots taken back.
    ReclaimedProcesses => "reclaimed_processes",
    /// Own objects dropped because they were damaged.
    DroppedDamaged => "dropped_damaged",
    /// Hints and withdrawals written to the prefetch ring.
    HintsSent => "hints_sent",
    /// Uses of other domains' objects written to the touch ring.
    TouchesSent => "touches_sent",
    /// Uses of other domains' objects that were forgotten, as too many came at once.
    TouchesDropped => "touches_dropped",
    /// Uses of own objects learnt from other domains' touch rings.
    TouchesTaken => "touches_taken",
    /// Ring entries that were overwritten before this process read them, or never came.
    RingMissed => "ring_missed",
    /// Accesses outside the mapping that were refused.
    OutOfBounds => "out_of_bounds",
    /// See [`Miss::Absent`].
    MissAbsent => "miss_absent",
    /// Objects that were found and passed over, as they failed their checks before.
    MissQuarantined => "miss_quarantined",
    /// See [`Miss::HeaderCrc`].
    MissHeaderCrc => "miss_header_crc",
    /// See [`Miss::Epoch`].
    MissEpoch => "miss_epoch",
    /// See [`Miss::Bounds`].
    MissBounds => "miss_bounds",
    /// See [`Miss::TableCrc`].
    MissTableCrc => "miss_table_crc",
    /// See [`Miss::Changed`].
    MissChanged => "miss_changed",
    /// See [`Miss::UnitCrc`].
    MissUnitCrc => "miss_unit_crc",
    /// See [`Miss::Size`].
    MissSize => "miss_size",
    /// See [`Miss::Lost`].
    MissLost => "miss_lost",
    /// See [`Refusal::Exists`].
    PutExists => "put_exists",
    /// See [`Refusal::Pending`].
    PutPending => "put_pending",
    /// See [`Refusal::Full`].
    PutFull => "put_full",
    /// See [`Refusal::TooLarge`].
    PutTooLarge => "put_too_large",
    /// See [`Refusal::ReadOnly`].
    PutReadOnly => "put_read_only",
    /// See [`Refusal::Lost`].
    PutLost => "put_lost",
    /// See [`Refusal::Gone`].
    PutGone => "put_gone",
}

impl Event {
    /// Name of the counter.
    pub const fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

impl From<Miss> for Event {
    fn from(miss: Miss) -> Self {
        match miss {
            Miss::Absent => Self::MissAbsent,

            Miss::HeaderCrc => Self::MissHeaderCrc,
            Miss::Epoch => Self::MissEpoch,
            Miss::Bounds => Self::MissBounds,
            Miss::TableCrc => Self::MissTableCrc,
            Miss::Changed => Self::MissChanged,
            Miss::UnitCrc => Self::MissUnitCrc,
            Miss::Size => Self::MissSize,
            Miss::Lost => Self::MissLost,
        }
    }
}

impl From<Refusal> for Event {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Exists => Self::PutExists,
            Refusal::Pending => Self::PutPending,
            Refusal::Full => Self::PutFull,
            Refusal::TooLarge => Self::PutTooLarge,
            Refusal::ReadOnly => Self::PutReadOnly,
            Refusal::Lost => Self::PutLost,
            Refusal::Gone => Self::PutGone,
        }
    }
}

/// The counters of one attached region in one process.
#[derive(Debug)]
pub struct Stats {
    events: Vec<AtomicU64>,
    hits_by_domain: Vec<AtomicU64>,
    tallied: [AtomicU64; 2],
}

impl Default for Stats {
    fn default() -> Self {
        let zeros = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
        Self {
            events: zeros(NAMES.len()),
            hits_by_domain: zeros(DOMAINS_MAX as usize),
            tallied: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

impl Stats {
    /// Counts `n` of an event. Relaxed: counters order nothing.
    #[inline]
    pub fn add(&self, event: Event, n: u64) {
        self.events[event as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Counts a read that hit in this domain.
    #[inline]
    pub fn hit(&self, domain: u32) {
        if let Some(counter) = self.hits_by_domain.get(domain as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keys found and not found by lookups since the last call.
    pub(crate) fn lookups_since(&self) -> [u64; 2] {
        let hits = self.get(Event::LookupHits);
        let misses = self.get(Event::LookupKeys).saturating_sub(hits);
        let since =
            |last: &AtomicU64, now: u64| now.saturating_sub(last.fetch_max(now, Ordering::Relaxed));
        [
            since(&self.tallied[0], hits),
            since(&self.tallied[1], misses),
        ]
    }

    /// One counter.
    pub fn get(&self, event: Event) -> u64 {
        self.events[event as usize].load(Ordering::Relaxed)
    }

    /// Every counter by name.
    pub fn events(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES
            .iter()
            .zip(&self.events)
            .map(|(name, n)| (*name, n.load(Ordering::Relaxed)))
    }

    /// Reads that hit, by domain.
    pub fn hits_by_domain(&self, domains: u32) -> Vec<u64> {
        self.hits_by_domain
            .iter()
            .take(domains as usize)
            .map(|n| n.load(Ordering::Relaxed))
            .collect()
    }
}
