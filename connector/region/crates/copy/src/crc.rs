//! CRC32C arithmetic: the polynomial ring modulo P, at compile time for kernel constants and at run time to combine.
//!
//! Bits are reflected throughout: in a 32-bit value bit `i` stands for x^(31-i), so `1 << 31` is the polynomial 1.

use crc::{CRC_32_ISCSI, Crc, Table};

/// The Castagnoli polynomial without its x^32 term, reflected (RFC 3720 appendix B.4).
pub const POLY: u32 = 0x82F6_3B78;

/// x^0 in reflected form.
const ONE: u32 = 1 << 31;

static TABLE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// CRC32C of `bytes` continued from `crc`, by tables: for small private buffers (headers, tables of a few lines).
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = TABLE.digest_with_initial((!crc).reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

/// CRC32C of `a || b` from the CRC of `a`, the CRC of `b` (computed from 0) and the length of `b` in bytes.
///
/// Lets two threads hash two halves of one object: `crc_combine(f(seed, a), f(0, b), b.len())`.
pub const fn crc_combine(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    multiply(power(8 * (len_b as u128)), crc_a) ^ crc_b
}

/// Product of two polynomials modulo P.
pub(crate) const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut shifted, mut bit) = (0, b, ONE);
    while bit != 0 {
        if a & bit != 0 {
            product ^= shifted;
        }
        shifted = if shifted & 1 == 1 {
            (shifted >> 1) ^ POLY
        } else {
            shifted >> 1
        };
        bit >>= 1;
    }
    product
}

/// x^(2^i) modulo P, for exponents up to bits of the largest length.
const SQUARES: [u32; 67] = {
    let mut squares = [ONE >> 1; 67];
    let mut i = 1;
    while i < squares.len() {
        squares[i] = multiply(squares[i - 1], squares[i - 1]);
        i += 1;
    }
    squares
};

/// x^exponent modulo P, for exponents below 2^67.
pub(crate) const fn power(exponent: u128) -> u32 {
    let (mut result, mut i) = (ONE, 0);
    while i < SQUARES.len() {
        if exponent >> i & 1 == 1 {
            result = multiply(result, SQUARES[i]);
        }
        i += 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3720_vectors() {
        assert_eq!(crc32c(0, &[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(0, &[0xFF; 32]), 0x62A8_AB43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(0, &ascending), 0x46DD_794E);
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(0, &descending), 0x113F_DB5C);
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
    }

    #[test]
    fn chained_equals_whole_and_empty_changes_nothing() {
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xE306_9283);
        assert_eq!(crc32c(7, &[]), 7);
    }

    #[test]
    fn combined_equals_chained_at_every_split() {
        let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * 7 + 3) as u8).collect();
        for split in [0, 1, 63, 64, 500, 999, 1000] {
            let (a, b) = bytes.split_at(split);
            let combined = crc_combine(crc32c(0xDEAD_BEEF, a), crc32c(0, b), b.len() as u64);
            assert_eq!(combined, crc32c(0xDEAD_BEEF, &bytes), "split at {split}");
        }
    }

    #[test]
    fn combine_takes_lengths_no_buffer_has() {
        let two_steps = crc_combine(crc_combine(1, 0, u64::MAX), 0, 1 << 63);
        assert_eq!(
            two_steps,
            crc_combine(crc_combine(1, 0, 1 << 63), 0, u64::MAX)
        );
        let halves = crc_combine(crc_combine(1, 0, 1 << 31), 0, 1 << 31);
        assert_eq!(halves, crc_combine(1, 0, 1 << 32));
        assert_ne!(halves, 1);
        // x has order 2^31 - 1 modulo P, so 2^31 - 1 bytes change nothing.
        assert_eq!(crc_combine(1, 0, (1 << 31) - 1), 1);
    }
}
