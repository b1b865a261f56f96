//! The superblock: the first 256 bytes of a region, which say what the rest is.
//!
//! | bytes | field |
//! |---|---|
//! | 0-7 | magic `HYMCACHE` |
//! | 8-11, 12-15 | version, state (1 = formatting, 2 = ready) |
//! | 16-23, 24-31, 32-39 | compat, incompat, read-only-compat feature bits |
//! | 40-55 | uuid |
//! | 56-63 | epoch |
//! | 64-71, 72-79, 80-87 | bytes of the region, granule, bytes of a chunk |
//! | 88-91, 92-95 | chunks per domain, domains |
//! | 96-99, 100-103 | sets per domain, lines of a table slot |
//! | 104-107, 108-111, 112-115 | process slots, namespace entries, quarantine lines per domain |
//! | 116-131 | entries of the touch, prefetch, publish and evicted rings |
//! | 132-135 | coherence: 1 = software, 2 = hardware |
//! | 136-143 | formatted at, seconds since 1970 |
//! | 144-151, 152-159 | where domain 0 and chunk 0 start, to check a reader's arithmetic |
//! | 160-251 | zero |
//! | 252-255 | CRC32C of bytes 0-251 |
//!
//! All numbers are little-endian. Of feature bits it does not know, a process ignores those of compat, refuses the region
//! for one of incompat, and attaches read-only at most for one of read-only-compat.

use crate::core::Identity;
use crate::error::{ErrorKind, RegionError, Result};
use crate::layout::{Geometry, Layout};

/// First bytes of every region.
pub const MAGIC: [u8; 8] = *b"HYMCACHE";
/// Bytes that the superblock takes.
pub const BYTES: usize = 256;
/// Layout version this code writes.
pub const VERSION: u32 = 1;
const INCOMPAT_KNOWN: u64 = 0;
const READ_ONLY_COMPAT_KNOWN: u64 = 0;
const CRC_AT: usize = BYTES - 4;
/// Place of the word whose upper half is the state.
pub const STATE_WORD_AT: u64 = 8;
/// Place of the epoch: one word, so that a request can see a new format by one load.
pub const EPOCH_AT: u64 = 56;

/// How far a format has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The metadata is being written.
    Formatting = 1,
    /// The region may be attached.
    Ready = 2,
}

/// A decoded superblock.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// Identity.
    pub identity: Identity,
    /// Numbers of the layout.
    pub geometry: Geometry,
    /// How far the format has come.
    pub progress: Progress,
    /// Features that only a release which knows them may store beside; 0 for what this one writes.
    pub read_only_features: u64,
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[at..at + 4]);
        u32::from_le_bytes(bytes)
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }
}

fn crc(bytes: &[u8]) -> u32 {
    hymcache_copy::crc32c(0, bytes)
}

impl Superblock {
    /// The bytes.
    pub fn encode(&self, layout: &Layout) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let g = &self.geometry;
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(self.progress as u32).to_le_bytes());
        put(32, &self.read_only_features.to_le_bytes());
        put(40, &self.identity.uuid);
        put(56, &self.identity.epoch.to_le_bytes());
        put(64, &g.bytes.to_le_bytes());
        put(72, &g.granule.to_le_bytes());
        put(80, &g.chunk_bytes.to_le_bytes());
        let counts = [
            g.domain_chunks,
            g.domains,
            g.sets,
            g.table_lines,
            g.processes,
            g.namespaces,
            g.quarantine_lines,
            g.rings[0],
            g.rings[1],
            g.rings[2],
            g.rings[3],
            if self.identity.software { 1 } else { 2 },
        ];
        for (i, count) in counts.iter().enumerate() {
            put(88 + 4 * i, &count.to_le_bytes());
        }
        put(136, &self.identity.formatted_seconds.to_le_bytes());
        put(144, &layout.domain_at.to_le_bytes());
        put(152, &layout.pool_at.to_le_bytes());
        let crc = crc(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the bytes of `target`, of which `medium_bytes` exist. Safe on hostile bytes.
    ///
    /// # Errors
    /// What the bytes are instead of a region that this version can attach; a format under way is one of those.
    pub fn decode(target: &str, bytes: &[u8; BYTES], medium_bytes: u64) -> Result<(Self, Layout)> {
        let fail = |kind, what: String| Err(RegionError::new(kind, format!("{target}: {what}")));
        let fields = Fields(bytes);
        if bytes.iter().all(|&b| b == 0) {
            return fail(
                ErrorKind::Unformatted,
                "expected a region, found zeros; format it, or wait for the host that does".into(),
            );
        }
        if bytes[..8] != MAGIC {
            return fail(
                ErrorKind::Foreign,
                format!(
                    "expected a region, found something else (first bytes {:02x?}); check the path",
                    &bytes[..8]
                ),
            );
        }
        let (version, unknown) = (fields.u32(8), fields.u64(24) & !INCOMPAT_KNOWN);
        if version > VERSION || version == VERSION && unknown != 0 {
            return fail(
                ErrorKind::Newer,
                format!(
                    "expected layout version {VERSION}, found version {version} with unknown features {unknown:#x}; \
                     use the release that formatted it"
                ),
            );
        }
        let sound = crc(&bytes[..CRC_AT]) == fields.u32(CRC_AT);
        if fields.u32(12) != Progress::Ready as u32 {
            let what = "a format is under way or died half-way; wait for it, or format again";
            return fail(ErrorKind::Formatting, what.into());
        }
        if !sound {
            return fail(
                ErrorKind::Torn,
                "the superblock's checksum does not hold; it is damaged or half-written, format it again".into(),
            );
        }
        if version < VERSION {
            return fail(
                ErrorKind::Older,
                format!(
                    "expected layout version {VERSION}, found version {version}, which no release can read any more; \
                     format it again"
                ),
            );
        }
        Self::checked(target, &fields, medium_bytes)
    }

    fn checked(target: &str, fields: &Fields, medium_bytes: u64) -> Result<(Self, Layout)> {
        let (geometry, identity) = (geometry(fields), identity(fields));
        if geometry.bytes > medium_bytes {
            return Err(RegionError::new(
                ErrorKind::Truncated,
                format!(
                    "{target}: expected {} bytes as its superblock says, found {medium_bytes}; restore the medium",
                    geometry.bytes
                ),
            ));
        }
        let damaged = |why: &str| {
            RegionError::new(
                ErrorKind::Torn,
                format!("{target}: the superblock contradicts itself ({why}); format it again"),
            )
        };
        let layout = Layout::new(geometry.clone()).map_err(|error| damaged(&error.message))?;
        if (layout.domain_at, layout.pool_at) != (fields.u64(144), fields.u64(152)) {
            return Err(damaged("places do not follow from the counts"));
        }
        let superblock = Self {
            identity,
            geometry,
            progress: Progress::Ready,
            read_only_features: fields.u64(32) & !READ_ONLY_COMPAT_KNOWN,
        };
        Ok((superblock, layout))
    }
}

fn geometry(fields: &Fields) -> Geometry {
    Geometry {
        bytes: fields.u64(64),
        granule: fields.u64(72),
        chunk_bytes: fields.u64(80),
        domain_chunks: fields.u32(88),
        domains: fields.u32(92),
        sets: fields.u32(96),
        table_lines: fields.u32(100),
        processes: fields.u32(104),
        namespaces: fields.u32(108),
        quarantine_lines: fields.u32(112),
        rings: std::array::from_fn(|i| fields.u32(116 + 4 * i)),
    }
}

fn identity(fields: &Fields) -> Identity {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&fields.0[40..56]);
    Identity {
        uuid,
        epoch: fields.u64(56),
        software: fields.u32(132) != 2, // whatever else it says: the class that assumes least
        formatted_seconds: fields.u64(136),
    }
}

/// A uuid as people write it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: Vec<String> = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!(
        "{}-{}-{}-{}-{}",
        hex[..4].concat(),
        hex[4..6].concat(),
        hex[6..8].concat(),
        hex[8..10].concat(),
        hex[10..].concat()
    )
}

/// Reads a uuid as people write it.
///
/// # Errors
/// The text is not 32 hexadecimal digits, dashes apart.
pub fn parse_uuid(text: &str) -> Result<[u8; 16]> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|&c| c != '-')
        .filter_map(|c| c.to_digit(16))
        .collect();
    if digits.len() != 32 || text.chars().any(|c| c != '-' && !c.is_ascii_hexdigit()) {
        return Err(RegionError::invalid(format!(
            "uuid: expected 32 hexadecimal digits, found {text:?}"
        )));
    }
    Ok(std::array::from_fn(|i| {
        (digits[2 * i] << 4 | digits[2 * i + 1]) as u8
    }))
}
