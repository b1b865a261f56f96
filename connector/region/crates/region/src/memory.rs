//! What the protocol needs of memory, and the names of every place where it needs it.
//!
//! The protocol is written once, over [`Memory`]. In the product that is [`crate::mapped::Mapped`], whose methods are
//! the instructions themselves, inlined. In tests it is a model with a private write-back cache per host, where flushed
//! and non-temporal stores stay pending until a fence and any line may come or go at any time. Each flush, fence and
//! check carries the name of its place ([`Step`], [`Check`]), so that a test wrapper can leave out exactly one of them;
//! the shipping implementation ignores the names.
//!
//! Places are bytes from the start of the region. An access out of range or misaligned is not undefined: it reads 0,
//! stores nothing, and reports itself where a result exists.

use crate::buffers::Piece;

/// A place where the protocol flushes, invalidates or fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Writer: every thread that stored payload or table, before it signals.
    PayloadFence,
    /// Writer: table slots leave the cache.
    TableFlush,
    /// Writer: the tag leaves the cache. Freshness: without it others find the object late.
    TagFlush,
    /// Writer: table and tag are in memory before the header says valid.
    CommitFence,
    /// Writer: the valid header leaves the cache. Freshness.
    ValidFlush,
    /// Writer: fence of [`Step::ValidFlush`]. Freshness.
    ValidFence,
    /// Evictor: the retired header leaves the cache. Freshness.
    RetireFlush,
    /// Evictor: fence of [`Step::RetireFlush`]. Freshness.
    RetireFence,
    /// Evictor: the leaving header leaves the cache before its chunks, or itself, are free.
    FreeFlush,
    /// Evictor: fence of [`Step::FreeFlush`].
    FreeFence,
    /// Whoever finishes for a dead process: that one may have died before its own flush.
    HeirFlush,
    /// Fence of [`Step::HeirFlush`].
    HeirFence,
    /// Reader: tag line of a foreign domain. Freshness.
    TagInvalidate,
    /// Reader: fence of [`Step::TagInvalidate`].
    TagFence,
    /// Lookup: header of a foreign domain whose tag is the key's. Freshness.
    ProbeInvalidate,
    /// Lookup: fence of [`Step::ProbeInvalidate`].
    ProbeFence,
    /// Reader: header of a foreign domain, first look. Freshness.
    HeaderInvalidate,
    /// Reader: fence of [`Step::HeaderInvalidate`].
    HeaderFence,
    /// Reader: the header is loaded before the table's lines are dropped.
    TableFenceBefore,
    /// Reader: table slot of a foreign domain.
    TableInvalidate,
    /// Reader: the table's lines are dropped before they are loaded.
    TableFence,
    /// Reader: payload of a foreign domain.
    PayloadInvalidate,
    /// Reader: the first batch of the payload's lines is dropped before it is loaded.
    CopyFence,
    /// Reader: every later batch of the payload's lines, likewise.
    BatchFence,
    /// Reader: the payload is loaded before the header's line is dropped again.
    RecheckFenceBefore,
    /// Reader: header of a foreign domain, second look.
    RecheckInvalidate,
    /// Reader: the header's line is dropped before it is loaded again.
    RecheckFence,
    /// Attach: the superblock's lines.
    SuperblockInvalidate,
    /// Attach: fence of [`Step::SuperblockInvalidate`].
    SuperblockFence,
    /// Whoever writes a sealed line (record, extent, owner, namespace): it leaves the cache.
    SealedFlush,
    /// Fence of [`Step::SealedFlush`].
    SealedFence,
    /// Whoever reads a sealed line.
    SealedInvalidate,
    /// Fence of [`Step::SealedInvalidate`].
    SealedLookFence,
    /// New owner of a domain: lines that this host has of it are as old as its last look.
    TakeoverInvalidate,
    /// New owner: fence of [`Step::TakeoverInvalidate`], before its first store.
    TakeoverFence,
    /// New owner: the emptied metadata leaves the cache, so that nobody reads the former owner's objects any more.
    TakeoverFlush,
    /// New owner: fence of [`Step::TakeoverFlush`].
    TakeoverDone,
    /// Format: a superblock that says so is in memory before anything else changes.
    FormatBeginFlush,
    /// Fence of [`Step::FormatBeginFlush`].
    FormatBeginFence,
    /// Format: the other words of the superblock are in memory before its state.
    FormatBodyFlush,
    /// Fence of [`Step::FormatBodyFlush`].
    FormatBodyFence,
    /// Format: the state that says ready leaves the cache. Freshness.
    FormatReadyFlush,
    /// Fence of [`Step::FormatReadyFlush`].
    FormatReadyFence,
    /// Format: counters, which other hosts report. Freshness.
    FormatCountersFlush,
    /// Producer of a ring: the entry leaves the cache. Freshness.
    RingFlush,
    /// Producer of a ring: fence of [`Step::RingFlush`]. Freshness.
    RingFence,
    /// Consumer of another domain's ring: its last look is over before it drops the lines again. Freshness.
    RingFenceBefore,
    /// Consumer of another domain's ring: the lines it is about to look at. Freshness.
    RingInvalidate,
    /// Consumer of a ring: fence of [`Step::RingInvalidate`]. Freshness.
    RingLookFence,
    /// Owner: its counters of lookups, which other hosts report, leave the cache. Freshness.
    TallyFlush,
    /// Owner: fence of [`Step::TallyFlush`]. Freshness.
    TallyFence,
    /// Whoever reports another host's counters: their lines. Freshness.
    TallyInvalidate,
    /// Fence of [`Step::TallyInvalidate`]. Freshness.
    TallyLookFence,
}

/// A condition the protocol relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// The header's checksum, which covers its place, the region and the epoch.
    HeaderCrc,
    /// Lookup: the header's key is the one looked for.
    Key,
    /// Read: the header that is read has the key the lookup saw.
    SameKey,
    /// The header is readable, and in the generation the reference names.
    Generation,
    /// The header was written in this epoch of the region.
    Epoch,
    /// Read: units, their size and their number are possible.
    HeaderBounds,
    /// Read: a table slot lies in the domain.
    SlotBounds,
    /// Read: a chunk lies in the region.
    ChunkBounds,
    /// Write: a table slot of the own chain lies in the domain.
    ChainBounds,
    /// Release: a table slot of the own chain lies in the domain.
    FreeBounds,
    /// Write and commit: a chunk of the own chain is still held for this write.
    Held,
    /// The table's checksum, kept in the header.
    TableCrc,
    /// The second look at the header found the first.
    Recheck,
    /// The unit's checksum.
    UnitCrc,
    /// A chunk that is freed belongs to a header that let go of it.
    Orphan,
    /// No live process still writes to the chunk that is freed.
    Unwritten,
    /// The commit is the reserver's, all sections are stored.
    Complete,
    /// The checksum of a ring's entry.
    RingCrc,
}

/// Memory that several hosts map. Methods take `&self`: any thread may call any of them at any time.
pub trait Memory {
    /// Loads an aligned word; later accesses are not moved before it (pairs with [`Memory::store`]).
    fn load(&self, at: u64) -> u64;
    /// Stores an aligned word after every earlier access of this thread (non-temporal stores and flushes excepted).
    fn store(&self, at: u64, value: u64);
    /// Compare-and-swap among the processes of one host; sequentially consistent.
    ///
    /// # Errors
    /// What was found instead of `old`.
    fn cas(&self, at: u64, old: u64, new: u64) -> Result<u64, u64>;
    /// Adds among the processes of one host, wrapping; returns what was there.
    fn add(&self, at: u64, value: u64) -> u64;

    /// Starts writing back and dropping every line of the range; done at this thread's next fence.
    fn flush(&self, at: u64, len: u64, step: Step);
    /// Starts dropping every line of the range from this host's caches; done at this thread's next full fence.
    fn invalidate(&self, at: u64, len: u64, step: Step);
    /// Orders earlier stores, non-temporal stores and flushes before later stores.
    fn store_fence(&self, step: Step);
    /// Orders every earlier access and flush before every later one.
    fn full_fence(&self, step: Step);
    /// Hints that the line will be loaded soon.
    fn prefetch(&self, at: u64);

    /// Copies private bytes to the region by non-temporal stores and returns the CRC32C continued from `crc`;
    /// `None`, and nothing stored, when the range is not inside the region.
    fn copy_in(&self, at: u64, from: Piece, crc: u32) -> Option<u32>;
    /// Copies from the region to private bytes and returns the CRC32C continued from `crc`; `None` when the range is
    /// not inside the region. `whole` bytes are copied altogether: from some size on they go past the caches, and the
    /// caller fences before anyone else looks at them.
    fn copy_out(&self, at: u64, to: Piece, crc: u32, whole: u64) -> Option<u32>;
    /// CRC32C of private bytes, continued from `crc`.
    fn crc(&self, crc: u32, bytes: &[u8]) -> u32;

    /// False once this process must publish nothing more: a hole in the medium was met, or it is a forked child.
    fn is_intact(&self) -> bool;

    /// Passes a verdict on; a test wrapper overrides one.
    #[inline]
    fn judge(&self, _check: Check, verdict: bool) -> bool {
        verdict
    }
}
