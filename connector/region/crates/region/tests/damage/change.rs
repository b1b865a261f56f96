//! Ways to damage a region: blind ones, and ones that repair the checksum so that the damage gets past it.

use crate::aimed::named_seed;
use crate::bed::{REGION_BYTES, Raw};
use hymcache_copy::crc32c;
use hymcache_region::header::{Header, checked_bytes, checksum, with_checksum};
use hymcache_region::layout::{DOMAIN_OWNER_AT, DOMAIN_RECORD_AT, LINE, Layout, Ring};
use hymcache_region::superblock::BYTES;

/// Small deterministic random numbers (xorshift64*): a seed names a round.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

/// Numbers that break arithmetic.
pub(crate) const AWKWARD: [u64; 12] = [
    0,
    1,
    2,
    7,
    63,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    0xFFFF_FFFF_0000_0000,
    1 << 62,
    1 << 63,
    u64::MAX,
];

/// What a round did to the region.
#[derive(Default)]
pub(crate) struct Damage {
    /// Bytes that were overwritten.
    pub(crate) bytes: u64,
    /// A checksum was made to fit: what is read may be forged.
    pub(crate) forged: bool,
}

/// Damages the region in the way the random numbers say.
pub(crate) fn damage(raw: &Raw, layout: &Layout, random: &mut Random) -> Damage {
    let mut damage = Damage::default();
    match random.below(9) {
        0 => bits(raw, layout, random, &mut damage),
        1 | 2 => words(raw, layout, random, &mut damage),
        3 | 4 => headers(raw, layout, random, &mut damage),
        5 => rare_lines(raw, layout, random, &mut damage),
        6 => superblock(raw, random, &mut damage),
        7 => ranges(raw, layout.pool_at, random, &mut damage),
        _ => ranges(raw, REGION_BYTES, random, &mut damage),
    }
    damage
}

/// Writes ring entries that have their checksum and say what no producer would.
pub(crate) fn forge_rings(raw: &Raw, layout: &Layout, random: &mut Random) {
    let seed = named_seed();
    for _ in 0..random.below(40) {
        let ring = [Ring::Touch, Ring::Prefetch, Ring::Evicted][random.below(3) as usize];
        let domain = random.below(2) as u32;
        let ticket = raw.load(layout.ring_ticket(domain, ring));
        let sequence = match random.below(4) {
            0 => awkward(random, ticket),
            _ => ticket
                .wrapping_add(random.below(70))
                .wrapping_sub(random.below(70)),
        };
        let at = layout.ring_line(domain, ring, sequence);
        let mut line = [sequence, 0, 0, 0, 0, 0, 0, 0];
        for word in &mut line[1..7] {
            let use_of_a_header =
                1 << 63 | random.below(3) << 56 | random.below(1 << 12) << 28 | random.below(4);
            *word = awkward(random, use_of_a_header);
        }
        let mut bytes = at.to_le_bytes().to_vec();
        bytes.extend(line[..7].iter().flat_map(|word| word.to_le_bytes()));
        line[7] = u64::from(crc32c(seed, &bytes)) << 32;
        for (i, word) in line.iter().enumerate() {
            raw.store(at + 8 * i as u64, *word);
        }
    }
}

fn bits(raw: &Raw, layout: &Layout, random: &mut Random, damage: &mut Damage) {
    for _ in 0..=random.below(300) {
        let at = BYTES as u64 + random.below(layout.pool_at - BYTES as u64);
        raw.flip(at & !7, 1 << random.below(64));
        damage.bytes += 1;
    }
}

pub(crate) fn awkward(random: &mut Random, old: u64) -> u64 {
    match random.below(4) {
        0 => random.next(),
        1 => old.wrapping_add(1),
        2 => old ^ AWKWARD[random.below(12) as usize],
        _ => AWKWARD[random.below(12) as usize],
    }
}

fn words(raw: &Raw, layout: &Layout, random: &mut Random, damage: &mut Damage) {
    for _ in 0..=random.below(400) {
        let at = area(layout, random);
        raw.store(at, awkward(random, raw.load(at)));
        damage.bytes += 8;
    }
}

/// A word of one of the areas, so that small areas are met as often as large ones.
fn area(layout: &Layout, random: &mut Random) -> u64 {
    let g = &layout.geometry;
    let domain = random.below(g.domains.into()) as u32;
    let mut pick = |n: u32| random.below(n.into()) as u32;
    let line = match pick(8) {
        0 => layout.header(domain, pick(layout.headers())),
        1 => layout.tags(domain, pick(g.sets)),
        2 => layout.table(domain, pick(g.domain_chunks)) + LINE * u64::from(pick(g.table_lines)),
        3 => layout.chunk_word(domain, pick(g.domain_chunks)) & !(LINE - 1),
        4 => layout.process(domain, pick(g.processes)) + LINE * u64::from(pick(2)),
        5 => layout.recency(domain, pick(layout.headers())) & !(LINE - 1),
        6 => layout.quarantine(domain, pick(g.quarantine_lines)),
        _ => layout.domain(domain) + LINE * u64::from(pick((DOMAIN_OWNER_AT / LINE) as u32 + 16)),
    };
    line + 8 * u64::from(pick(8))
}

/// The checksum that a header has to have at its place.
pub(crate) fn header_crc(layout_place: u64, line: &[u64; 8]) -> u32 {
    crc32c(named_seed(), &checked_bytes(layout_place, line))
}

fn headers(raw: &Raw, layout: &Layout, random: &mut Random, damage: &mut Damage) {
    for _ in 0..=random.below(24) {
        let domain = random.below(layout.geometry.domains.into()) as u32;
        let at = layout.header(domain, random.below(layout.headers().into()) as u32);
        let mut line: [u64; 8] = std::array::from_fn(|i| raw.load(at + 8 * i as u64));
        let mut header = Header::decode(&line);
        let value = awkward(random, u64::from(header.table));
        match random.below(8) {
            0 => header.units = value as u16,
            1 => header.unit_bytes = value as u32,
            2 => header.sections = value as u8,
            3 => header.table = value as u32,
            4 => header.table = random.below(layout.geometry.domain_chunks.into()) as u32,
            5 => header.word.0 ^= value & 15,
            6 => header.algorithm = value as u8,
            _ => header.table_crc = value as u32,
        }
        let old = checksum(&line);
        line = header.encode();
        damage.forged |= random.below(4) > 0;
        let crc = if damage.forged {
            header_crc(at, &line)
        } else {
            old
        };
        line[7] = with_checksum(&line, crc);
        for (i, word) in line.iter().enumerate() {
            raw.store(at + 8 * i as u64, *word);
        }
        damage.bytes += LINE;
    }
}

/// Record, owner and extents, with and without a seal that holds.
fn rare_lines(raw: &Raw, layout: &Layout, random: &mut Random, damage: &mut Damage) {
    for _ in 0..=random.below(6) {
        let domain = random.below(layout.geometry.domains.into()) as u32;
        let at = match random.below(4) {
            0 => layout.domain(domain) + DOMAIN_RECORD_AT,
            1 => layout.domain(domain) + DOMAIN_OWNER_AT,
            2 => layout.namespace(domain, random.below(3) as u32),
            _ => layout.extent(domain, random.below(3) as u32),
        };
        let mut line: [u64; 8] = std::array::from_fn(|i| raw.load(at + 8 * i as u64));
        let word = random.below(7) as usize;
        line[word] = awkward(random, line[word]);
        if random.below(4) > 0 {
            line[7] &= 0xFFFF_FFFF;
            let mut bytes = at.to_le_bytes().to_vec();
            bytes.extend(line.iter().flat_map(|word| word.to_le_bytes()));
            line[7] |= u64::from(crc32c(0, &bytes)) << 32;
            damage.forged = true;
        }
        for (i, word) in line.iter().enumerate() {
            raw.store(at + 8 * i as u64, *word);
        }
        damage.bytes += LINE;
    }
}

fn superblock(raw: &Raw, random: &mut Random, damage: &mut Damage) {
    for _ in 0..=random.below(3) {
        let at = 8 * random.below(BYTES as u64 / 8);
        raw.store(at, awkward(random, raw.load(at)));
        damage.bytes += 8;
    }
    if random.below(4) > 0 {
        let words = (0..BYTES as u64 / 8).map(|i| raw.load(8 * i).to_le_bytes());
        let bytes: Vec<u8> = words.flatten().collect();
        let crc = u64::from(crc32c(0, &bytes[..BYTES - 4]));
        let last = BYTES as u64 - 8;
        raw.store(last, raw.load(last) & 0xFFFF_FFFF | crc << 32);
        damage.forged = true;
    }
}

/// Whole ranges: random bytes, zeros, ones, or what lies somewhere else.
fn ranges(raw: &Raw, end: u64, random: &mut Random, damage: &mut Damage) {
    for _ in 0..=random.below(4) {
        let most = [8, 512, 32_768][random.below(3) as usize];
        let words = 1 + random.below(most);
        let words = words.min((end - BYTES as u64) / 8);
        let place = |random: &mut Random| {
            BYTES as u64 + 8 * random.below((end - BYTES as u64) / 8 - words + 1)
        };
        let (to, from) = (place(random), place(random));
        let kind = random.below(4);
        for i in 0..words {
            let word = match kind {
                0 => 0,
                1 => u64::MAX,
                2 => random.next(),
                _ => raw.load(from + 8 * i),
            };
            raw.store(to + 8 * i, word);
        }
        damage.bytes += 8 * words;
    }
}
