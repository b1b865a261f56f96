//! What copies leave in the caches, by the clock: a line that another host must see may not stay dirty in ours.
#![cfg(target_arch = "x86_64")]

use core::arch::x86_64::{_mm_lfence, _rdtsc};
use hymcache_copy::{kernels, line};

const TRIES: usize = 101;

/// Ticks of one load.
fn load_ticks(address: *const u8) -> u64 {
    // SAFETY: callers point into their own buffers; RDTSC and LFENCE are part of x86-64.
    unsafe {
        line::mfence();
        _mm_lfence();
        let start = _rdtsc();
        _mm_lfence();
        std::hint::black_box(address.read_volatile());
        _mm_lfence();
        _rdtsc() - start
    }
}

/// The median of many tries: some are disturbed by other work, some by a prefetcher that was quick.
fn median(mut ticks: impl FnMut() -> u64) -> u64 {
    let mut all: Vec<u64> = (0..TRIES).map(|_| ticks()).collect();
    all.sort_unstable();
    all[TRIES / 2]
}

#[test]
fn a_non_temporal_copy_leaves_no_line_of_its_destination_in_the_cache() {
    let source = vec![1_u8; 20_000];
    let mut target = vec![0_u8; 20_000 + 128];
    let base = target.as_ptr().align_offset(64);
    // Whole lines; both edges; one byte; a tail that is hashed by other means than the loop.
    for (skew, len) in [
        (0, 4096),
        (5, 4096),
        (13, 1),
        (0, 100),
        (40, 16_500),
        (0, 5000),
    ] {
        let start = base + skew;
        for kernel in kernels() {
            for offset in [0, len / 2, len - 1] {
                let address = target.as_ptr().wrapping_add(start + offset);
                let cached = median(|| {
                    std::hint::black_box(target[start + offset]);
                    load_ticks(address)
                });
                let after_copy = median(|| {
                    std::hint::black_box(target[start + offset]);
                    // SAFETY: the target has room for the skew and the length.
                    unsafe {
                        (kernel.copy_nt_crc)(
                            target.as_mut_ptr().add(start),
                            source.as_ptr(),
                            len,
                            0,
                        )
                    };
                    load_ticks(address)
                });
                assert!(
                    after_copy > cached * 3 / 2,
                    "{}: byte {offset} of {len} at skew {skew}: {after_copy} ticks, {cached} when cached",
                    kernel.name
                );
            }
        }
    }
}
