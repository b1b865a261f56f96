//! Every kernel gives what an independent CRC32C and a plain copy give, wherever it is pointed.

use hymcache_copy::{crc_combine, crc32c, kernels, line};
use proptest::prelude::*;
use std::time::Instant;

const GUARD: u8 = 0xC3;
const GUARD_BYTES: usize = 128;

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(step).collect()
}

/// Lengths where loops begin and end are as likely as any other.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..600_usize,
        (0..64_usize, 0..3_usize).prop_map(|(lines, extra)| lines * 64 + extra),
        (1..9_usize, 0..130_usize)
            .prop_map(|(blocks, extra)| (blocks * 4096 + extra).saturating_sub(65)),
        (1..6_usize, 0..130_usize)
            .prop_map(|(tiles, extra)| (tiles * 16384 + extra).saturating_sub(65)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_kernel_copies_exactly_and_returns_the_reference_crc(
        length in length(), src_skew in 0..130_usize, dst_skew in 0..130_usize, seed: u64, crc: u32,
    ) {
        let source = bytes(src_skew + length, seed);
        let wanted = &source[src_skew..];
        let expected = crc32c::crc32c_append(crc, wanted);
        prop_assert_eq!(crc32c(crc, wanted), expected);
        for kernel in kernels() {
            // SAFETY: a slice.
            prop_assert_eq!(unsafe { (kernel.crc)(wanted.as_ptr(), length, crc) }, expected, "{}", kernel.name);
            for (how, copy) in [("ordinary", kernel.copy_crc), ("non-temporal", kernel.copy_nt_crc)] {
                let start = GUARD_BYTES + dst_skew;
                let mut target = vec![GUARD; start + length + GUARD_BYTES];
                // SAFETY: the target has room for start + length.
                let found = unsafe { copy(target.as_mut_ptr().add(start), wanted.as_ptr(), length, crc) };
                line::sfence();
                prop_assert_eq!(found, expected, "{} {}", kernel.name, how);
                prop_assert!(target[start..start + length] == *wanted, "{} {}: bytes differ", kernel.name, how);
                let outside = target[..start].iter().chain(&target[start + length..]);
                prop_assert!(outside.into_iter().all(|byte| *byte == GUARD), "{} {}: stray store", kernel.name, how);
            }
        }
    }

    #[test]
    fn every_kernel_chains_and_combines_at_any_split(length in length(), split: prop::sample::Index, seed: u64, crc: u32) {
        let source = bytes(length, seed);
        let (a, b) = source.split_at(split.index(length + 1));
        let expected = crc32c::crc32c_append(crc, &source);
        for kernel in kernels() {
            // SAFETY: slices.
            let (first, chained, alone) = unsafe {
                let first = (kernel.crc)(a.as_ptr(), a.len(), crc);
                (first, (kernel.crc)(b.as_ptr(), b.len(), first), (kernel.crc)(b.as_ptr(), b.len(), 0))
            };
            prop_assert_eq!(chained, expected, "{}", kernel.name);
            prop_assert_eq!(crc_combine(first, alone, b.len() as u64), expected, "{}", kernel.name);
        }
    }
}

#[test]
fn bare_copies_copy_too() {
    let source = bytes(3 * 4096, 5);
    for bare in hymcache_copy::bare::copies() {
        let mut target = vec![GUARD; source.len() + 256];
        let start = target.as_ptr().align_offset(64);
        // SAFETY: the target has room behind its first aligned byte.
        unsafe {
            (bare.copy)(
                target.as_mut_ptr().add(start),
                source.as_ptr(),
                source.len(),
            );
        };
        assert!(
            target[start..start + source.len()] == source,
            "{}",
            bare.name
        );
        let outside = target[..start]
            .iter()
            .chain(&target[start + source.len()..]);
        assert!(
            outside.into_iter().all(|byte| *byte == GUARD),
            "{}",
            bare.name
        );
    }
}

#[test]
fn kernel_numbers_and_names_are_unique_and_portable_is_first() {
    let all = kernels();
    assert_eq!((all[0].id, all[0].name), (1, "portable"));
    for (i, a) in all.iter().enumerate() {
        assert!(
            all[i + 1..]
                .iter()
                .all(|b| a.id != b.id && a.name != b.name),
            "{}",
            a.name
        );
        assert_eq!(
            hymcache_copy::by_id(a.id).map(|found| found.name),
            Some(a.name)
        );
    }
    assert!(hymcache_copy::by_id(0).is_none());
}

#[test]
fn no_kernel_fails_its_known_answers_on_this_machine() {
    assert!(
        hymcache_copy::dropped().is_empty(),
        "{:?}",
        hymcache_copy::dropped()
    );
}

/// Somebody overwrites the source during the copy: the CRC must be that of the bytes that arrived.
#[test]
fn crc_is_of_the_bytes_stored_even_while_the_source_changes() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    const WORDS: usize = 8 * 1024;
    let source: Vec<AtomicU64> = (0..WORDS).map(|i| AtomicU64::new(i as u64)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
                for word in &source {
                    word.store(value, Ordering::Relaxed);
                }
            }
        });
        let _stop_at_the_end = Stop(&stop);
        let mut target = vec![0_u8; WORDS * 8 + 64];
        let start = target.as_ptr().align_offset(64);
        let mut torn = 0;
        let started = Instant::now();
        // On a busy machine the other thread may not run for a while: go on until it has been seen often.
        for round in 0.. {
            // Long enough for the loops, and short enough for what kernels do without them.
            let length = [WORDS * 8, 2048, 512][round as usize % 3];
            for kernel in kernels() {
                for copy in [kernel.copy_crc, kernel.copy_nt_crc] {
                    // SAFETY: both ranges hold WORDS words; the source is atomics, so concurrent stores are values.
                    let found = unsafe {
                        copy(
                            target.as_mut_ptr().add(start),
                            source.as_ptr().cast(),
                            length,
                            round,
                        )
                    };
                    line::sfence();
                    let arrived = &target[start..start + length];
                    torn += usize::from(arrived[..8] != arrived[length - 8..]);
                    let expected = crc32c::crc32c_append(round, arrived);
                    assert_eq!(found, expected, "{}, {length} bytes", kernel.name);
                }
            }
            if round >= 400 && torn >= 1000 {
                return;
            }
            assert!(
                started.elapsed().as_secs() < 60,
                "the source changed during {torn} copies only: nothing proved"
            );
        }
    });
}
