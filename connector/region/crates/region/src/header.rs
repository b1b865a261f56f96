//! The header line: 64 bytes that say everything about one object, in one cache line.
//!
//! | bytes | field |
//! |---|---|
//! | 0-7 | [`HeaderWord`]: state, owner, generation; stored first (not valid) and last (valid) |
//! | 8-27 | key digest |
//! | 28-31 | bytes of a unit |
//! | 32-33 | units of a section |
//! | 34 | sections (ranks of this host) |
//! | 35 | checksum algorithm of the units: 1 = CRC32C |
//! | 36, 37 | part, parts (ranks on other hosts) |
//! | 38-39 | namespace number, 0 = not registered |
//! | 40-43 | first table slot, a chunk number inside the domain |
//! | 44-47 | CRC32C of the table slots |
//! | 48-51 | epoch, low 32 bits |
//! | 52-55 | seconds from the region's format to the commit |
//! | 56-59 | zero |
//! | 60-63 | CRC32C of the line's place and bytes 0-59, state and owner as zero |

use crate::layout::LINE;
use crate::words::HeaderWord;

/// Checksum algorithm number of CRC32C.
pub const CRC32C: u8 = 1;
/// A line as eight little-endian words.
pub type Line = [u64; 8];

/// Everything in a header line but its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// State, owner, generation.
    pub word: HeaderWord,
    /// First 64 bits of the key's digest.
    pub key_a: u64,
    /// Next 64.
    pub key_b: u64,
    /// Last 32.
    pub key_c: u32,
    /// Bytes of a unit.
    pub unit_bytes: u32,
    /// Units of a section.
    pub units: u16,
    /// Sections.
    pub sections: u8,
    /// Checksum algorithm of the units.
    pub algorithm: u8,
    /// Part.
    pub part: u8,
    /// Parts.
    pub parts: u8,
    /// Namespace number.
    pub namespace: u16,
    /// First table slot.
    pub table: u32,
    /// CRC32C of the table.
    pub table_crc: u32,
    /// Epoch, low 32 bits.
    pub epoch: u32,
    /// Seconds from format to commit.
    pub stored_seconds: u32,
}

impl Header {
    /// The fields of a line, whatever they hold. The checksum is [`checksum`]'s business.
    pub const fn decode(line: &Line) -> Self {
        Self {
            word: HeaderWord(line[0]),
            key_a: line[1],
            key_b: line[2],
            key_c: line[3] as u32,
            unit_bytes: (line[3] >> 32) as u32,
            units: line[4] as u16,
            sections: (line[4] >> 16) as u8,
            algorithm: (line[4] >> 24) as u8,
            part: (line[4] >> 32) as u8,
            parts: (line[4] >> 40) as u8,
            namespace: (line[4] >> 48) as u16,
            table: line[5] as u32,
            table_crc: (line[5] >> 32) as u32,
            epoch: line[6] as u32,
            stored_seconds: (line[6] >> 32) as u32,
        }
    }

    /// The line, its checksum field zero.
    pub const fn encode(&self) -> Line {
        [
            self.word.0,
            self.key_a,
            self.key_b,
            self.key_c as u64 | (self.unit_bytes as u64) << 32,
            self.units as u64
                | (self.sections as u64) << 16
                | (self.algorithm as u64) << 24
                | (self.part as u64) << 32
                | (self.parts as u64) << 40
                | (self.namespace as u64) << 48,
            self.table as u64 | (self.table_crc as u64) << 32,
            self.epoch as u64 | (self.stored_seconds as u64) << 32,
            0,
        ]
    }

    /// Bytes from one unit to the next: padded so that no two share a line.
    pub const fn unit_stride(&self) -> u64 {
        (self.unit_bytes as u64).next_multiple_of(LINE)
    }

    /// Units of the object.
    pub const fn total_units(&self) -> u64 {
        self.units as u64 * self.sections as u64
    }
}

/// What the line's checksum covers: its place in the region, then the line without state, owner and checksum.
pub fn checked_bytes(place: u64, line: &Line) -> [u8; 68] {
    let mut bytes = [0; 68];
    bytes[..8].copy_from_slice(&place.to_le_bytes());
    bytes[8..16].copy_from_slice(&HeaderWord(line[0]).stable().to_le_bytes());
    for (slot, word) in bytes[16..64].chunks_exact_mut(8).zip(&line[1..7]) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    bytes[64..].copy_from_slice(&(line[7] as u32).to_le_bytes());
    bytes
}

/// A line as it lies in memory.
pub fn line_bytes(line: &Line) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (slot, word) in bytes.chunks_exact_mut(8).zip(line) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The checksum field of a line.
pub const fn checksum(line: &Line) -> u32 {
    (line[7] >> 32) as u32
}

/// The last word of a line with this checksum.
pub const fn with_checksum(line: &Line, crc: u32) -> u64 {
    line[7] & 0xFFFF_FFFF | (crc as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::State;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_line_survives_decode_and_encode(line: [u64; 8]) {
            let again = Header::decode(&line).encode();
            prop_assert_eq!(&again[..7], &line[..7]);
        }

        #[test]
        fn the_checksum_covers_every_bit_but_state_owner_and_itself(line: [u64; 8], bit in 0_usize..480) {
            let mut other = line;
            other[bit / 64] ^= 1 << (bit % 64);
            let same = checked_bytes(0, &line) == checked_bytes(0, &other);
            prop_assert_eq!(same, bit < 16, "bit {}", bit);
            prop_assert_ne!(checked_bytes(0, &line), checked_bytes(64, &line));
        }
    }

    #[test]
    fn golden_bytes() {
        let header = Header {
            word: HeaderWord::new(State::Valid, 0, 0x0102_0304_0506),
            key_a: 0x1111_1111_1111_1111,
            key_b: 0x2222_2222_2222_2222,
            key_c: 0x3333_3333,
            unit_bytes: 0x4444_4444,
            units: 0x5555,
            sections: 0x66,
            algorithm: CRC32C,
            part: 0x77,
            parts: 0x88,
            namespace: 0x9999,
            table: 0xAAAA_AAAA,
            table_crc: 0xBBBB_BBBB,
            epoch: 0xCCCC_CCCC,
            stored_seconds: 0xDDDD_DDDD,
        };
        let bytes: Vec<u8> = header
            .encode()
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        let expected = [
            "0200060504030201 1111111111111111 2222222222222222 3333333344444444",
            "5555660177889999 aaaaaaaabbbbbbbb ccccccccdddddddd 0000000000000000",
        ];
        let hex = |nibbles: &str| {
            let digits: Vec<u8> = nibbles
                .chars()
                .filter_map(|c| c.to_digit(16))
                .map(|d| d as u8)
                .collect();
            digits
                .chunks(2)
                .map(|pair| pair[0] << 4 | pair[1])
                .collect::<Vec<_>>()
        };
        assert_eq!(bytes, hex(&expected.concat()));
    }
}
