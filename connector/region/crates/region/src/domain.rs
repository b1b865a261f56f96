//! The rare lines of a domain: its record and extents (written by format), its owner (written at attach), its namespaces.

use crate::core::{Core, Extent, Own};
use crate::error::{ErrorKind, RegionError, Result};
use crate::header::Line;
use crate::layout::{
    DOMAIN_OWNER_AGAIN_AT, DOMAIN_OWNER_AT, DOMAIN_RECORD_AT, EXTENTS_MAX, LINE, Layout, Ring,
};
use crate::memory::{Memory, Step};
use crate::ring::turn_of;

const RECORD_MAGIC: u64 = u32::from_le_bytes(*b"HyDm") as u64;

/// Kind of a domain that holds chunks. 1 is reserved for control domains, which hold none.
pub const KIND_DATA: u32 = 0;

/// Who stores into a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerLine {
    /// How often the domain changed hands; 0 = never owned.
    pub turn: u64,
    /// Identity of the host.
    pub host: [u8; 16],
    /// Identity of the host's boot: another one proves that every earlier process is dead.
    pub boot: [u8; 16],
    /// When, in milliseconds since 1970.
    pub since_ms: u64,
}

fn pair(bytes: &[u8; 16]) -> [u64; 2] {
    let number = u128::from_le_bytes(*bytes);
    [number as u64, (number >> 64) as u64]
}

fn unpair(low: u64, high: u64) -> [u8; 16] {
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}

/// Seals a rare line: its last word's upper half becomes the CRC32C of its place and its other bytes.
fn sealed<M: Memory>(mem: &M, place: u64, mut line: Line) -> Line {
    line[7] &= 0xFFFF_FFFF;
    let mut bytes = place.to_le_bytes().to_vec();
    bytes.extend(line.iter().flat_map(|word| word.to_le_bytes()));
    line[7] |= u64::from(mem.crc(0, &bytes)) << 32;
    line
}

fn store_line<M: Memory>(mem: &M, place: u64, line: &Line) {
    for (i, word) in line.iter().enumerate() {
        mem.store(place + 8 * i as u64, *word);
    }
    mem.flush(place, LINE, Step::SealedFlush);
    mem.store_fence(Step::SealedFence);
}

/// Loads a rare line fresh; `None` when its seal does not hold.
pub(crate) fn load_sealed<M: Memory>(mem: &M, place: u64) -> Option<Line> {
    mem.invalidate(place, LINE, Step::SealedInvalidate);
    mem.full_fence(Step::SealedLookFence);
    let line: Line = std::array::from_fn(|i| mem.load(place + 8 * i as u64));
    (sealed(mem, place, line) == line).then_some(line)
}

/// Writes a domain's record and its first extent; everything else of its metadata is zero already.
pub fn format_domain<M: Memory>(mem: &M, layout: &Layout, domain: u32) {
    let at = layout.domain(domain) + DOMAIN_RECORD_AT;
    let chunks = layout.geometry.domain_chunks;
    let record = [
        RECORD_MAGIC | u64::from(domain) << 32,
        u64::from(KIND_DATA) | 1 << 32,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    store_line(mem, at, &sealed(mem, at, record));
    let at = layout.extent(domain, 0);
    let first = u64::from(chunks) * u64::from(domain);
    let extent = [1, first << 32, chunks.into(), 0, 0, 0, 0, 0];
    store_line(mem, at, &sealed(mem, at, extent));
}

/// The chunks a domain holds.
///
/// # Errors
/// The record or an extent is damaged, or an extent lies outside the region.
pub fn load_extents<M: Memory>(mem: &M, layout: &Layout, domain: u32) -> Result<Vec<Extent>> {
    let damaged = |what: &str| {
        RegionError::new(
            ErrorKind::Torn,
            format!("domain {domain}: its {what} is damaged; format the region again"),
        )
    };
    let record = load_sealed(mem, layout.domain(domain) + DOMAIN_RECORD_AT)
        .filter(|line| line[0] == RECORD_MAGIC | u64::from(domain) << 32)
        .ok_or_else(|| damaged("record"))?;
    let count = (record[1] >> 32) as u32;
    (0..count.min(EXTENTS_MAX))
        .map(|i| {
            let line =
                load_sealed(mem, layout.extent(domain, i)).ok_or_else(|| damaged("extent"))?;
            let extent = Extent {
                local: line[1] as u32,
                chunk: (line[1] >> 32) as u32,
                count: line[2] as u32,
            };
            let ends = |first: u32| u64::from(first) + u64::from(extent.count);
            let inside = ends(extent.chunk) <= layout.chunks.into()
                && ends(extent.local) <= layout.geometry.domain_chunks.into();
            if inside {
                Ok(extent)
            } else {
                Err(damaged("extent"))
            }
        })
        .collect()
}

/// Who owns a domain, as far as the line can be read.
pub fn load_owner<M: Memory>(mem: &M, layout: &Layout, domain: u32) -> Option<OwnerLine> {
    load_owner_at(mem, layout.domain(domain) + DOMAIN_OWNER_AT)
}

/// As [`load_owner`], from the second copy where the line is damaged. That one is believed unless the rings know of a
/// later turn: a release that writes no second copy left it behind.
pub fn recall_owner<M: Memory>(mem: &M, layout: &Layout, domain: u32) -> Option<OwnerLine> {
    load_owner(mem, layout, domain).or_else(|| {
        let again = load_owner_at(mem, layout.domain(domain) + DOMAIN_OWNER_AGAIN_AT);
        again.filter(|owner| turn_told(mem, layout, domain) <= owner.turn)
    })
}

/// The latest turn that a domain's rings know of.
pub fn turn_told<M: Memory>(mem: &M, layout: &Layout, domain: u32) -> u64 {
    let rings = [Ring::Touch, Ring::Prefetch, Ring::Publish, Ring::Evicted];
    let told = rings.map(|ring| turn_of(mem.load(layout.ring_ticket(domain, ring))));
    told.into_iter().fold(0, u64::max)
}

fn load_owner_at<M: Memory>(mem: &M, at: u64) -> Option<OwnerLine> {
    let line = load_sealed(mem, at)?;
    Some(OwnerLine {
        turn: line[0],
        host: unpair(line[1], line[2]),
        boot: unpair(line[3], line[4]),
        since_ms: line[5],
    })
}

/// Writes the owner line and its second copy, that one first: who dies in between has left one of both whole.
pub fn store_owner<M: Memory>(mem: &M, layout: &Layout, domain: u32, owner: &OwnerLine) {
    let ([h0, h1], [b0, b1]) = (pair(&owner.host), pair(&owner.boot));
    let line = [owner.turn, h0, h1, b0, b1, owner.since_ms, 0, 0];
    for place in [DOMAIN_OWNER_AGAIN_AT, DOMAIN_OWNER_AT] {
        let at = layout.domain(domain) + place;
        store_line(mem, at, &sealed(mem, at, line));
    }
}

/// Writes what damage left of the owner line and its second copy anew.
pub fn mend_owner<M: Memory>(mem: &M, layout: &Layout, domain: u32, owner: &OwnerLine) {
    let places =
        [DOMAIN_OWNER_AGAIN_AT, DOMAIN_OWNER_AT].map(|place| layout.domain(domain) + place);
    if places.map(|at| load_owner_at(mem, at)) != [Some(*owner); 2] {
        store_owner(mem, layout, domain, owner);
    }
}

impl<M: Memory> Core<M> {
    /// Number of a namespace in the own domain, registered if there is room; 0 when there is none. For reports alone:
    /// the key's digest keeps namespaces apart.
    pub fn namespace_number(&self, fingerprint: &[u8; 32]) -> u16 {
        let Some(own) = &self.own else { return 0 };
        let words: [u64; 4] = std::array::from_fn(|i| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&fingerprint[8 * i..8 * i + 8]);
            u64::from_le_bytes(bytes)
        });
        let name = words[0].max(1);
        let count = self.layout.geometry.namespaces;
        for probe in 0..count {
            let index = ((name >> 32) as u32).wrapping_add(probe) % count;
            let at = self.layout.namespace(own.domain, index);
            let found = match self.mem.load(at) {
                0 => self.mem.cas(at, 0, name).err().unwrap_or(name),
                found => found,
            };
            if found == name && self.complete_namespace(own, at, name, &words) {
                return index as u16 + 1;
            }
        }
        0
    }

    /// Stores the rest of an entry whose first word is this namespace's; idempotent, as its first writer may have died.
    fn complete_namespace(&self, _own: &Own, at: u64, name: u64, words: &[u64; 4]) -> bool {
        let line = sealed(
            &self.mem,
            at,
            [name, words[0], words[1], words[2], words[3], 0, 0, 0],
        );
        let found = self.line(at);
        if sealed(&self.mem, at, found) == found && found[1..5] != words[..] {
            return false; // another fingerprint with the same first word
        }
        if found != line {
            store_line(&self.mem, at, &line);
        }
        true
    }
}
