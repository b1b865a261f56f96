//! Where every byte of a region lies. The same arithmetic for the writer, the reader and the inspector; the page
//! `docs/region-format.md` says it in words.
//!
//! ```text
//! | superblock | domain 0 metadata | domain 1 metadata | ... | chunk 0 | chunk 1 | ...            |
//! 0            domain_at           + domain_bytes             pool_at                      bytes
//! ```
//! Everything from `domain_at` on is aligned to `granule`, so that the pages of one domain can be protected apart from
//! its neighbours'. Inside a domain's metadata the areas follow one another in the order of [`Area`].

use crate::error::{RegionError, Result};

/// Bytes in a cache line: the unit hosts exchange, hence the unit with one writer.
pub const LINE: u64 = 64;
/// Tags in a line, header lines in a set.
pub const WAYS: u32 = 16;
/// Bytes at the start of the region that hold the superblock.
pub const SUPERBLOCK_BYTES: u64 = 4096;
/// Bytes at the start of a domain: record, owner, counters, extents.
pub const DOMAIN_BLOCK_BYTES: u64 = 4096;
/// Bytes of a process slot: identity line, two lines of writes in progress, one reserved for leases.
pub const PROCESS_BYTES: u64 = 4 * LINE;
/// Writes a process can have in progress by reference.
pub const WRITES_MAX: u32 = 16;
/// Owner-local bytes per header line: recency word, progress word.
pub const SIDE_BYTES: u64 = 16;
/// Owner-local bytes per header line: the name of an evicted object.
pub const GHOST_BYTES: u64 = 8;
/// Bytes of a shadow entry.
pub const SHADOW_BYTES: u64 = 16;
/// Shadow entries in a set: two lines.
pub const SHADOW_WAYS: u64 = 8;
/// Bytes of a chunk word.
pub const CHUNK_WORD_BYTES: u64 = 8;
/// Bytes of a table slot before its unit checksums: chunk number, next slot.
pub const TABLE_HEAD_BYTES: u64 = 8;
/// Bytes of a unit checksum: CRC32C and four reserved.
pub const UNIT_CRC_BYTES: u64 = 8;
/// Rings of a domain: touch, prefetch, publish, evicted.
pub const RINGS: usize = 4;
/// Most domains in a region.
pub const DOMAINS_MAX: u32 = 64;
/// Most header lines in a domain: what the packed words can name.
pub const HEADERS_MAX: u64 = 1 << 28;
/// Most process slots in a domain: what the header word can name.
pub const PROCESSES_MAX: u32 = 1 << 12;
/// Extents a domain can hold.
pub const EXTENTS_MAX: u32 = 32;

const _: () = assert!(PROCESS_BYTES == 2 * LINE + LINE * 2);
const _: () = assert!(WRITES_MAX as u64 * 8 == 2 * LINE);
const _: () = assert!(DOMAIN_COUNTERS_AT + 8 * LINE <= DOMAIN_LOCK_FILE_AT);
const _: () = assert!(DOMAIN_LOCK_FILE_AT + LINE <= DOMAIN_EXTENTS_AT);
const _: () = assert!(DOMAIN_EXTENTS_AT + EXTENTS_MAX as u64 * LINE <= DOMAIN_TOUCH_CURSORS_AT);
const _: () = assert!(DOMAIN_TOUCH_CURSORS_AT + DOMAINS_MAX as u64 * 8 <= DOMAIN_TICKETS_AT);
const _: () = assert!(DOMAIN_TICKETS_AT + RINGS as u64 * LINE <= DOMAIN_OWNER_AGAIN_AT);
const _: () = assert!(DOMAIN_OWNER_AGAIN_AT + LINE <= DOMAIN_BLOCK_BYTES);

/// Place of the domain record in the domain block: kind, counts, written by format alone.
pub const DOMAIN_RECORD_AT: u64 = 0;
/// Place of the owner line.
pub const DOMAIN_OWNER_AT: u64 = DOMAIN_RECORD_AT + LINE;
/// Place of the counters: one line each.
pub const DOMAIN_COUNTERS_AT: u64 = 2 * LINE;
/// Place of the word that names the lock file, where the medium is a device. Owner-local.
pub const DOMAIN_LOCK_FILE_AT: u64 = 960;
/// Place of the extent lines.
pub const DOMAIN_EXTENTS_AT: u64 = 1024;
/// Place of the cursors into the other domains' touch rings, a word each. Owner-local.
pub const DOMAIN_TOUCH_CURSORS_AT: u64 = 3072;
/// Place of the rings' tickets, one line each. Owner-local.
pub const DOMAIN_TICKETS_AT: u64 = 3584;
/// Place of the owner line's second copy.
pub const DOMAIN_OWNER_AGAIN_AT: u64 = 3840;

/// Counters of a domain, one line each so that they do not share one. Hints: every one can be rebuilt.
#[derive(Clone, Copy, Debug)]
pub enum Counter {
    /// Ticks handed out for recency.
    Clock = 0,
    /// Chunks whose word is free, about: see [`crate::words::FreeChunks`].
    FreeChunks = 1,
    /// Entries ever put into the quarantine set; 0 spares the lookup its probe.
    Quarantined = 2,
    /// Keys that lookups of this domain's host found, in any domain.
    Hits = 3,
    /// Keys that lookups of this domain's host did not find, those behind the first missing one included.
    Misses = 4,
    /// Live objects that were used once, about.
    Recent = 5,
    /// First word of the line that says how victims are chosen: see [`Policy`].
    Policy = 6,
}

/// Rings of a domain, in the order of their place and of [`Geometry::rings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// Objects of other domains that processes of this one used.
    Touch = 0,
    /// Objects that requests of this domain's host will read.
    Prefetch = 1,
    /// Reserved: objects that became visible in this domain.
    Publish = 2,
    /// Objects that lookups do not find in this domain any more.
    Evicted = 3,
}

/// Words of the line that says how victims are chosen. Hints: any value is safe, a wrong one costs hits.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// How many objects used once the adaptive arm keeps, in 65536ths: see [`crate::ghosts`].
    Target = 0,
    /// Which arm leads, and by how much: see [`crate::duel`].
    Duel,
    /// [`Policy::Target`] of the adaptive shadow.
    ShadowTarget,
    /// Names that the adaptive shadow remembers by list, 32 bits each.
    ShadowGhosts,
    /// Keys that came into the shadows since they were last trimmed.
    Admitted,
}

/// What a region is made of: the numbers the superblock stores. Everything else is derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of the whole region.
    pub bytes: u64,
    /// Alignment of what is protected apart, a power of two.
    pub granule: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks that one domain may hold.
    pub domain_chunks: u32,
    /// Domains.
    pub domains: u32,
    /// Sets of header lines per domain.
    pub sets: u32,
    /// Lines of a table slot.
    pub table_lines: u32,
    /// Process slots per domain.
    pub processes: u32,
    /// Namespace entries per domain.
    pub namespaces: u32,
    /// Lines of the quarantine set per domain.
    pub quarantine_lines: u32,
    /// Entries of the touch, prefetch, publish and evicted rings, one line each.
    pub rings: [u32; RINGS],
}

/// Areas of a domain's metadata, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Record, owner, counters, extents.
    Block = 0,
    /// Process slots.
    Processes,
    /// Namespace registry.
    Namespaces,
    /// Quarantine set.
    Quarantine,
    /// The four rings, one after the other.
    Rings,
    /// Tag lines.
    Tags,
    /// Header lines.
    Headers,
    /// Recency and progress words.
    Side,
    /// Chunk words.
    ChunkWords,
    /// Table slots.
    Tables,
    /// Names of evicted objects.
    Ghosts,
    /// Shadow directories of the duel.
    Shadows,
}

const AREAS: usize = Area::Shadows as usize + 1;

/// A geometry with its places worked out. All places are bytes from the start of the region.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The numbers it came from.
    pub geometry: Geometry,
    /// Start of domain 0's metadata.
    pub domain_at: u64,
    /// Bytes from one domain's metadata to the next.
    pub domain_bytes: u64,
    /// Start of chunk 0.
    pub pool_at: u64,
    /// Chunks in the region.
    pub chunks: u32,
    areas: [u64; AREAS],
}

impl Layout {
    /// Works the places out.
    ///
    /// # Errors
    /// A number is out of its range, or the parts do not fit into `bytes`. Safe on hostile numbers.
    pub fn new(geometry: Geometry) -> Result<Self> {
        geometry.check()?;
        let g = &geometry;
        let headers = u64::from(g.sets) * u64::from(WAYS);
        let sizes: [u64; AREAS] = [
            DOMAIN_BLOCK_BYTES,
            u64::from(g.processes) * PROCESS_BYTES,
            u64::from(g.namespaces) * LINE,
            u64::from(g.quarantine_lines) * LINE,
            g.rings.iter().map(|&n| u64::from(n) * LINE).sum(),
            u64::from(g.sets) * LINE,
            headers * LINE,
            headers * SIDE_BYTES,
            (u64::from(g.domain_chunks) * CHUNK_WORD_BYTES).next_multiple_of(LINE),
            u64::from(g.domain_chunks) * u64::from(g.table_lines) * LINE,
            headers * GHOST_BYTES,
            u64::from(shadow_sets(g.sets)) * SHADOW_WAYS * SHADOW_BYTES,
        ];
        let mut areas = [0; AREAS];
        let mut end = 0;
        for (at, size) in areas.iter_mut().zip(sizes) {
            *at = end;
            end += size; // at most 2^28 headers x 80 B + 2^32 chunks x 2^17 B: far below 2^64
        }
        let domain_at = SUPERBLOCK_BYTES.next_multiple_of(g.granule);
        let domain_bytes = end.next_multiple_of(g.granule);
        let pool_at = domain_at + domain_bytes * u64::from(g.domains);
        let chunks = u64::from(g.domain_chunks) * u64::from(g.domains);
        let fits = u32::try_from(chunks)
            .ok()
            .filter(|_| {
                chunks
                    .checked_mul(g.chunk_bytes)
                    .and_then(|pool| pool.checked_add(pool_at))
                    .is_some_and(|end| end <= g.bytes)
            })
            .ok_or_else(|| {
                RegionError::invalid(format!(
                    "region of {} bytes: too small for {} domains of {} chunks of {} bytes and their metadata; \
                     give fewer domains, smaller chunks or more bytes",
                    g.bytes, g.domains, g.domain_chunks, g.chunk_bytes
                ))
            })?;
        Ok(Self {
            domain_at,
            domain_bytes,
            pool_at,
            chunks: fits,
            areas,
            geometry,
        })
    }

    /// Header lines per domain.
    pub const fn headers(&self) -> u32 {
        self.geometry.sets * WAYS
    }

    /// Start of a domain's metadata.
    pub fn domain(&self, domain: u32) -> u64 {
        debug_assert!(domain < self.geometry.domains);
        self.domain_at + u64::from(domain) * self.domain_bytes
    }

    fn place(&self, domain: u32, area: Area, index: u64, entry: u64) -> u64 {
        self.domain(domain) + self.areas[area as usize] + index * entry
    }

    /// A counter word.
    pub fn counter(&self, domain: u32, counter: Counter) -> u64 {
        self.place(domain, Area::Block, counter as u64, LINE) + DOMAIN_COUNTERS_AT
    }

    /// The word that names the lock file.
    pub fn lock_file(&self, domain: u32) -> u64 {
        self.domain(domain) + DOMAIN_LOCK_FILE_AT
    }

    /// An extent line.
    pub fn extent(&self, domain: u32, index: u32) -> u64 {
        self.place(domain, Area::Block, u64::from(index), LINE) + DOMAIN_EXTENTS_AT
    }

    /// A process slot.
    pub fn process(&self, domain: u32, slot: u32) -> u64 {
        self.place(domain, Area::Processes, u64::from(slot), PROCESS_BYTES)
    }

    /// A namespace entry.
    pub fn namespace(&self, domain: u32, index: u32) -> u64 {
        self.place(domain, Area::Namespaces, u64::from(index), LINE)
    }

    /// A line of the quarantine set.
    pub fn quarantine(&self, domain: u32, line: u32) -> u64 {
        self.place(domain, Area::Quarantine, u64::from(line), LINE)
    }

    /// Entries of a ring.
    pub const fn ring_entries(&self, ring: Ring) -> u64 {
        self.geometry.rings[ring as usize] as u64
    }

    /// A line of a ring; `index` is cut to the ring's size.
    pub fn ring_line(&self, domain: u32, ring: Ring, index: u64) -> u64 {
        let before: u64 = self.geometry.rings[..ring as usize]
            .iter()
            .map(|&n| u64::from(n))
            .sum();
        let index = before + index % self.ring_entries(ring);
        self.place(domain, Area::Rings, index, LINE)
    }

    /// The word that hands out a ring's sequence numbers.
    pub fn ring_ticket(&self, domain: u32, ring: Ring) -> u64 {
        self.place(domain, Area::Block, ring as u64, LINE) + DOMAIN_TICKETS_AT
    }

    /// Where `domain` stands in the touch ring of domain `of`.
    pub fn touch_cursor(&self, domain: u32, of: u32) -> u64 {
        self.place(domain, Area::Block, u64::from(of), 8) + DOMAIN_TOUCH_CURSORS_AT
    }

    /// The tag line of a set.
    pub fn tags(&self, domain: u32, set: u32) -> u64 {
        self.place(domain, Area::Tags, u64::from(set), LINE)
    }

    /// A header line; header `set * WAYS + way` belongs to that way of the tag line.
    pub fn header(&self, domain: u32, header: u32) -> u64 {
        self.place(domain, Area::Headers, u64::from(header), LINE)
    }

    /// The recency word of a header.
    pub fn recency(&self, domain: u32, header: u32) -> u64 {
        self.place(domain, Area::Side, u64::from(header), SIDE_BYTES)
    }

    /// The progress word of a header.
    pub fn progress(&self, domain: u32, header: u32) -> u64 {
        self.recency(domain, header) + 8
    }

    /// A word of the line that says how victims are chosen.
    pub fn policy(&self, domain: u32, word: Policy) -> u64 {
        self.counter(domain, Counter::Policy) + 8 * word as u64
    }

    /// A ghost word; words `set * WAYS + way` name objects that have that set.
    pub fn ghost(&self, domain: u32, index: u32) -> u64 {
        self.place(domain, Area::Ghosts, u64::from(index), GHOST_BYTES)
    }

    /// Sets of shadow entries per domain.
    pub const fn shadow_sets(&self) -> u32 {
        shadow_sets(self.geometry.sets)
    }

    /// A shadow entry; entries `set * SHADOW_WAYS + way` belong to one set.
    pub fn shadow(&self, domain: u32, index: u32) -> u64 {
        self.place(domain, Area::Shadows, u64::from(index), SHADOW_BYTES)
    }

    /// The word of a domain's chunk, by its number inside the domain.
    pub fn chunk_word(&self, domain: u32, local: u32) -> u64 {
        self.place(domain, Area::ChunkWords, u64::from(local), CHUNK_WORD_BYTES)
    }

    /// Bytes of a table slot.
    pub fn table_bytes(&self) -> u64 {
        u64::from(self.geometry.table_lines) * LINE
    }

    /// Unit checksums that a table slot holds.
    pub fn table_units(&self) -> u64 {
        (self.table_bytes() - TABLE_HEAD_BYTES) / UNIT_CRC_BYTES
    }

    /// The table slot of a domain's chunk, by its number inside the domain.
    pub fn table(&self, domain: u32, local: u32) -> u64 {
        self.place(domain, Area::Tables, u64::from(local), self.table_bytes())
    }

    /// The bytes of a chunk, by its number in the region.
    pub fn chunk(&self, chunk: u32) -> u64 {
        self.pool_at + u64::from(chunk) * self.geometry.chunk_bytes
    }
}

/// Three shadow entries for sixteen headers: both shadows and the names one of them remembers, of one key in sixteen.
const fn shadow_sets(sets: u32) -> u32 {
    (sets * 3).div_ceil(8)
}

impl Geometry {
    fn check(&self) -> Result<()> {
        let power = |name: &str, n: u64, low: u64, high: u64| {
            if n.is_power_of_two() && (low..=high).contains(&n) {
                return Ok(());
            }
            Err(RegionError::invalid(format!(
                "{name}: expected a power of two between {low} and {high}, found {n}"
            )))
        };
        let range = |name: &str, n: u64, low: u64, high: u64| {
            if (low..=high).contains(&n) {
                return Ok(());
            }
            Err(RegionError::invalid(format!(
                "{name}: expected {low} to {high}, found {n}"
            )))
        };
        power("granule", self.granule, 4096, 1 << 30)?;
        power("chunk_bytes", self.chunk_bytes, LINE, 64 << 20)?;
        range("domains", self.domains.into(), 1, DOMAINS_MAX.into())?;
        range(
            "chunks per domain",
            self.domain_chunks.into(),
            1,
            u32::MAX.into(),
        )?;
        range("sets", self.sets.into(), 1, HEADERS_MAX / u64::from(WAYS))?;
        range("table_lines", self.table_lines.into(), 1, 1024)?;
        range("processes", self.processes.into(), 1, PROCESSES_MAX.into())?;
        range("namespaces", self.namespaces.into(), 1, u16::MAX.into())?;
        range("quarantine_lines", self.quarantine_lines.into(), 1, 1 << 20)?;
        for ring in self.rings {
            range("ring entries", ring.into(), 1, 1 << 24)?;
        }
        Ok(())
    }
}
