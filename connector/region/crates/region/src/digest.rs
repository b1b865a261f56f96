//! The directory key: a keyed digest of an engine key, cheap enough to take for every key of every lookup.
//!
//! Each of three 64-bit lanes is the multilinear hash of Lemire and Kaser ("Strongly universal string hashing is fast",
//! Computer Journal 57, 2014): the high 64 bits of `k0 + sum(k[i+1] * word[i]) mod 2^128`, with 128-bit keys. It is
//! strongly universal: for any two different engine keys the odds of one lane to agree are 2^-64 over the choice of the
//! key, so two objects of a region share a header's 160 bits with odds of 2^-160. The keys come from SHA-256 of the
//! region's uuid and the namespace's fingerprint: nobody can prepare colliding keys without knowing the uuid.
//!
//! Odds of pairs are not enough for the directory: the sum is linear, so engine keys that count up come at equal
//! distances, and in one region of some hundred they crowd into a few sets. A lane is therefore mixed, one to one.

use sha2::{Digest as _, Sha256};

/// Longest engine key, in bytes.
pub const KEY_BYTES_MAX: usize = 120;

const LANES: usize = 3;
const WORDS: usize = KEY_BYTES_MAX / 8 + 1; // the last word is the key's length

/// Digest of one engine key in one namespace of one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// First 64 bits; chooses the first set.
    pub a: u64,
    /// Next 64 bits; chooses the second set.
    pub b: u64,
    /// Next 32 bits.
    pub c: u32,
    /// 32 more bits, never 0, that no header stores: the tag.
    pub tag: u32,
}

impl Digest {
    /// The two sets a key may lie in, different where there is more than one.
    pub const fn sets(&self, sets: u32) -> [u32; 2] {
        let first = ((self.a as u128 * sets as u128) >> 64) as u32;
        let second = ((self.b as u128 * sets as u128) >> 64) as u32;
        if first == second {
            [first, (second + 1) % sets]
        } else {
            [first, second]
        }
    }

    /// The 160 bits that a header stores.
    pub fn bytes(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.a.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.b.to_le_bytes());
        bytes[16..].copy_from_slice(&self.c.to_le_bytes());
        bytes
    }
}

/// Keys of the digest, made once per namespace.
#[derive(Clone)]
pub struct Digester {
    keys: [[u128; WORDS + 1]; LANES],
}

impl Digester {
    /// Derives the keys from the region and the namespace.
    pub fn new(uuid: &[u8; 16], fingerprint: &[u8; 32]) -> Self {
        let mut stream = (0_u32..).flat_map(|block| {
            let digest = Sha256::new()
                .chain_update(b"hymcache directory key\0")
                .chain_update(uuid)
                .chain_update(fingerprint)
                .chain_update(block.to_le_bytes())
                .finalize();
            let half = |i: usize| {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&digest[16 * i..16 * (i + 1)]);
                u128::from_le_bytes(bytes)
            };
            [half(0), half(1)]
        });
        let mut next = || stream.next().unwrap_or_default();
        Self {
            keys: std::array::from_fn(|_| std::array::from_fn(|_| next())),
        }
    }

    /// Digest of `key`, at most [`KEY_BYTES_MAX`] bytes (what lies beyond is ignored: callers check).
    #[inline]
    pub fn digest(&self, key: &[u8]) -> Digest {
        let key = &key[..key.len().min(KEY_BYTES_MAX)];
        let mut sums: [u128; LANES] = std::array::from_fn(|lane| self.keys[lane][0]);
        let mut absorb = |index: usize, word: u64| {
            for (lane, sum) in sums.iter_mut().enumerate() {
                let product = self.keys[lane][index + 1].wrapping_mul(u128::from(word));
                *sum = sum.wrapping_add(product);
            }
        };
        let mut words = key.chunks_exact(8);
        for (index, word) in words.by_ref().enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            absorb(index, u64::from_le_bytes(bytes));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            absorb(key.len() / 8, u64::from_le_bytes(bytes));
        }
        absorb(WORDS - 1, key.len() as u64);
        let [a, b, c] = sums.map(|sum| mixed((sum >> 64) as u64));
        Digest {
            a,
            b,
            c: (c >> 32) as u32,
            tag: (c as u32).max(1),
        }
    }
}

/// Mixes a lane one to one, so that equal distances end. The odd constant is 2^64 over the golden ratio.
const fn mixed(lane: u64) -> u64 {
    (lane ^ lane >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::WAYS;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn digester() -> Digester {
        Digester::new(&[7; 16], &[9; 32])
    }

    #[test]
    fn another_region_or_namespace_gives_another_digest() {
        let key = [1; 36];
        let base = digester().digest(&key);
        assert_ne!(base, Digester::new(&[8; 16], &[9; 32]).digest(&key));
        assert_ne!(base, Digester::new(&[7; 16], &[8; 32]).digest(&key));
    }

    #[test]
    fn keys_that_differ_in_length_alone_differ() {
        let zeros = [0; KEY_BYTES_MAX];
        let digests: HashSet<_> = (0..=KEY_BYTES_MAX)
            .map(|n| digester().digest(&zeros[..n]).bytes())
            .collect();
        assert_eq!(digests.len(), KEY_BYTES_MAX + 1);
    }

    #[test]
    fn one_flipped_bit_changes_every_lane() {
        let key = [0x5A; 36];
        let base = digester().digest(&key);
        for bit in 0..key.len() * 8 {
            let mut other = key;
            other[bit / 8] ^= 1 << (bit % 8);
            let digest = digester().digest(&other);
            assert!(digest.a != base.a && digest.b != base.b && digest.c != base.c);
        }
    }

    #[test]
    fn sets_are_spread_evenly() {
        let mut load = vec![0_u32; 64];
        for n in 0_u64..64 * 256 {
            let [first, second] = digester().digest(&n.to_le_bytes()).sets(64);
            assert_ne!(first, second);
            load[first as usize] += 1;
        }
        assert!(load.iter().all(|&n| (150..400).contains(&n)), "{load:?}");
    }

    /// Keys that find both of their sets full while 252 keys fill 320 header lines: load 0.79.
    fn conflicts(digester: &Digester, key: impl Fn(u32) -> Vec<u8>) -> u32 {
        let mut load = [0; 20];
        (0..252)
            .filter(|&i| {
                let [first, second] = digester.digest(&key(i)).sets(20).map(|set| set as usize);
                let set = if load[second] < load[first] {
                    second
                } else {
                    first
                };
                load[set] += 1;
                load[set] > WAYS
            })
            .count() as u32
    }

    #[test]
    fn keys_that_count_up_crowd_no_set_in_any_region() {
        for region in 0_u32..2000 {
            let mut uuid = [0; 16];
            uuid[..4].copy_from_slice(&region.to_le_bytes());
            let digester = Digester::new(&uuid, &[9; 32]);
            let text = conflicts(&digester, |i| format!("a{i}").into_bytes());
            let number = conflicts(&digester, |i| u64::from(i).to_le_bytes().into());
            assert_eq!((text, number), (0, 0), "region {region}");
        }
    }

    proptest! {
        #[test]
        fn any_key_has_a_tag_and_two_sets_in_range(key in proptest::collection::vec(any::<u8>(), 0..200), sets in 1_u32..1 << 24) {
            let digest = digester().digest(&key);
            prop_assert_ne!(digest.tag, 0);
            prop_assert!(digest.sets(sets).iter().all(|&set| set < sets));
        }
    }
}
