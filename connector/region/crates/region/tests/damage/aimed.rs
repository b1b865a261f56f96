//! Damage that gets past the checksums and is aimed at one check each: a chain, an extent, an owner, a use that was told,
//! a reservation in the middle of a put.

use crate::bed::{Raw, UUID};
use crate::change::{AWKWARD, Damage, Random, awkward, header_crc};
use hymcache_copy::crc32c;
use hymcache_region::core::Place;
use hymcache_region::header::{Header, Line, with_checksum};
use hymcache_region::layout::{DOMAIN_OWNER_AT, LINE, Layout, Ring};

/// A table of more slots gets no checksum: whoever follows it has to stop before the end.
const SLOTS_MAX: u64 = 200;

/// The region's own part of every checksum.
pub(crate) fn named_seed() -> u32 {
    let mut named = UUID.to_vec();
    named.extend(1_u64.to_le_bytes());
    crc32c(0, &named)
}

fn load(raw: &Raw, at: u64) -> Line {
    std::array::from_fn(|i| raw.load(at + 8 * i as u64))
}

fn store(raw: &Raw, at: u64, line: &Line, damage: &mut Damage) {
    for (i, word) in line.iter().enumerate() {
        raw.store(at + 8 * i as u64, *word);
    }
    damage.bytes += LINE;
}

fn bytes(line: &Line) -> impl Iterator<Item = u8> {
    line.iter().flat_map(|word| word.to_le_bytes())
}

/// One to three times, any of the ways below.
pub(crate) fn aim(raw: &Raw, layout: &Layout, random: &mut Random, damage: &mut Damage) {
    for _ in 0..=random.below(3) {
        match random.below(6) {
            0..3 => chain(raw, layout, random, damage),
            3 => extent(raw, layout, random, damage),
            4 => owner(raw, layout, random, damage),
            _ => uses(raw, layout, random, damage),
        }
    }
}

/// A number of a chunk or of a slot: another one of the domain, or one that nothing has.
fn index(layout: &Layout, random: &mut Random, old: u32) -> u32 {
    match random.below(3) {
        0 => random.below(layout.geometry.domain_chunks.into()) as u32,
        1 => layout.geometry.domain_chunks + random.below(layout.chunks.into()) as u32,
        _ => awkward(random, old.into()) as u32,
    }
}

/// The first object from a header on, in either domain.
fn object(raw: &Raw, layout: &Layout, random: &mut Random) -> Option<(u32, u64, Header)> {
    let domain = random.below(layout.geometry.domains.into()) as u32;
    let first = random.below(layout.headers().into()) as u32;
    (0..layout.headers()).find_map(|i| {
        let at = layout.header(domain, (first + i) % layout.headers());
        let header = Header::decode(&load(raw, at));
        header.word.state()?;
        (header.total_units() > 0).then_some((domain, at, header))
    })
}

/// A chain that leads elsewhere, with the table's checksum and the header's.
fn chain(raw: &Raw, layout: &Layout, random: &mut Random, damage: &mut Damage) {
    let Some((domain, at, mut header)) = object(raw, layout, random) else {
        return;
    };
    if random.below(4) == 0 {
        // More slots than there are: following them goes round in the domain, if anything does.
        header.units = u16::MAX;
        header.sections = u8::MAX;
        header.unit_bytes = AWKWARD[random.below(8) as usize] as u32;
        damage.forged = true;
    }
    let inside = |slot: u32| slot < layout.geometry.domain_chunks;
    let by_bytes = header.total_units().saturating_mul(header.unit_stride());
    let slots = by_bytes
        .div_ceil(layout.geometry.chunk_bytes)
        .max(header.total_units().div_ceil(layout.table_units()))
        .max(1);
    let (chosen, cycle) = (random.below(slots.min(4)), random.below(2) == 0);
    let mut crc = crc32c(named_seed(), &header.word.generation().to_le_bytes());
    let mut slot = header.table;
    for i in 0..slots.min(SLOTS_MAX) {
        if !inside(slot) {
            break;
        }
        let table = layout.table(domain, slot);
        let mut head = raw.load(table);
        if i == chosen {
            let (chunk, next) = (head as u32, (head >> 32) as u32);
            head = match random.below(3) {
                _ if slots > SLOTS_MAX => u64::from(chunk) | u64::from(header.table) << 32,
                0 if cycle => u64::from(chunk) | u64::from(slot) << 32,
                0 => u64::from(chunk) | u64::from(index(layout, random, next)) << 32,
                _ => u64::from(index(layout, random, chunk)) | u64::from(next) << 32,
            };
            raw.store(table, head);
            damage.bytes += 8;
        }
        for line in (0..layout.table_bytes()).step_by(LINE as usize) {
            let line: Vec<u8> = bytes(&load(raw, table + line)).collect();
            crc = crc32c(crc, &line);
        }
        slot = (head >> 32) as u32;
    }
    header.table_crc = crc;
    let mut line = header.encode();
    line[7] = with_checksum(&line, header_crc(at, &line));
    store(raw, at, &line, damage);
}

/// Gives a rare line its seal.
fn seal(raw: &Raw, at: u64, line: &mut Line, damage: &mut Damage) {
    line[7] &= 0xFFFF_FFFF;
    let covered: Vec<u8> = at.to_le_bytes().into_iter().chain(bytes(line)).collect();
    line[7] |= u64::from(crc32c(0, &covered)) << 32;
    store(raw, at, line, damage);
}

/// Chunks that are others', or nowhere.
fn extent(raw: &Raw, layout: &Layout, random: &mut Random, damage: &mut Damage) {
    let at = layout.extent(random.below(2) as u32, 0);
    let mut line = load(raw, at);
    let word = 1 + random.below(2) as usize;
    let old = (line[word] >> 32) as u32;
    line[word] = match random.below(3) {
        0 => line[word] & 0xFFFF_FFFF | u64::from(index(layout, random, old)) << 32,
        1 => line[word] >> 32 << 32 | u64::from(index(layout, random, old)),
        _ => awkward(random, line[word]),
    };
    seal(raw, at, &mut line, damage);
}

/// A former owner on another host, or before a reboot, after any number of others.
fn owner(raw: &Raw, layout: &Layout, random: &mut Random, damage: &mut Damage) {
    let at = layout.domain(random.below(2) as u32) + DOMAIN_OWNER_AT;
    let mut line = load(raw, at);
    line[0] = match random.below(2) {
        0 => u64::MAX - random.below(2),
        _ => awkward(random, line[0]),
    };
    line[1 + 2 * random.below(2) as usize] ^= random.next();
    seal(raw, at, &mut line, damage);
}

/// Uses of objects that cannot be, told next.
fn uses(raw: &Raw, layout: &Layout, random: &mut Random, damage: &mut Damage) {
    let domain = random.below(2) as u32;
    let ticket = raw.load(layout.ring_ticket(domain, Ring::Touch));
    for i in 1..=4 {
        let sequence = ticket.wrapping_add(i);
        let at = layout.ring_line(domain, Ring::Touch, sequence);
        let mut line = [sequence, 0, 0, 0, 0, 0, 0, 0];
        for word in &mut line[1..7] {
            let header = random.next() >> (36 + random.below(28));
            *word = 1 << 63 | u64::from(1 - domain) << 56 | header << 28 | random.below(4);
        }
        let covered: Vec<u8> = at.to_le_bytes().into_iter().chain(bytes(&line)).collect();
        line[7] = u64::from(crc32c(named_seed(), &covered[..64])) << 32;
        store(raw, at, &line, damage);
    }
}

/// A reservation that changes before its bytes are stored, or before it is committed.
pub(crate) fn reservation(raw: &Raw, layout: &Layout, random: &mut Random, place: Place) {
    let at = layout.header(place.domain, place.header);
    let slot = raw.load(at + 40) as u32;
    let wrong = index(layout, random, slot);
    if slot >= layout.geometry.domain_chunks || random.below(2) == 0 {
        raw.store(at + 40, raw.load(at + 40) >> 32 << 32 | u64::from(wrong));
    } else {
        let table = layout.table(place.domain, slot);
        raw.store(
            table,
            raw.load(table) & 0xFFFF_FFFF | u64::from(wrong) << 32,
        );
    }
}
