//! Objects in pieces: every byte once, in order; and invalidated before it is read where that is asked for.

use hymcache_copy::pieces::BATCH_BYTES;
use hymcache_copy::{
    Piece, copy_pieces, copy_pieces_invalidated, crc_combine, kernels, line, share,
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_of_any_lengths_arrive_in_order_with_the_crc_of_the_whole(
        lengths in proptest::collection::vec(prop_oneof![0..300_usize, 0..BATCH_BYTES * 2, Just(32 << 10)], 0..12),
        crc: u32,
    ) {
        let total: usize = lengths.iter().sum();
        let source: Vec<u8> = (0..total as u32).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 23) as u8).collect();
        let expected = crc32c::crc32c_append(crc, &source);
        let kernel = kernels().last().expect("at least the portable kernel");
        for copy in [copy_pieces, copy_pieces_invalidated] {
            let mut target = vec![0_u8; total];
            let mut at = 0;
            let pieces: Vec<Piece> = lengths.iter().map(|&len| {
                let piece = Piece {
                    dst: target.as_mut_ptr().wrapping_add(at), src: source.as_ptr().wrapping_add(at), len,
                };
                at += len;
                piece
            }).collect();
            // SAFETY: pieces lie inside the two vectors.
            prop_assert_eq!(unsafe { copy(kernel.copy_nt_crc, &pieces, crc) }, expected);
            line::sfence();
            prop_assert!(target == source);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shares_cover_every_byte_once_begin_at_lines_and_their_crcs_combine(
        len in prop_oneof![0..1000_usize, 0..100_000_usize], count in 1..9_usize, crc: u32,
    ) {
        let source: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 22) as u8).collect();
        let mut end = 0;
        let mut combined = crc;
        for range in (0..count).map(|index| share(len, index, count)) {
            prop_assert_eq!(range.start, end);
            prop_assert!(range.start % 64 == 0 && range.len() < len / count + 128);
            end = range.end;
            let part = &source[range];
            combined = crc_combine(combined, crc32c::crc32c(part), part.len() as u64);
        }
        prop_assert_eq!(end, len);
        prop_assert_eq!(combined, crc32c::crc32c_append(crc, &source));
    }
}

/// Stands in for a kernel: counts how many of a few lines, asked in an order no prefetcher follows, come from a cache.
#[cfg(target_arch = "x86_64")]
unsafe fn count_cached(_: *mut u8, src: *const u8, len: usize, cached: u32) -> u32 {
    let pages = len / 4096;
    (0..pages).fold(cached, |cached, i| {
        // Pages are a power of two: bits reversed, every page comes once and no stride repeats.
        let page = i.reverse_bits() >> (usize::BITS - pages.trailing_zeros());
        let line = page * 29 % 64;
        // SAFETY: inside the piece; RDTSC and LFENCE are part of x86-64.
        let ticks = unsafe {
            core::arch::x86_64::_mm_lfence();
            let start = core::arch::x86_64::_rdtsc();
            core::arch::x86_64::_mm_lfence();
            std::hint::black_box(src.add(page * 4096 + line * 64).read_volatile());
            core::arch::x86_64::_mm_lfence();
            core::arch::x86_64::_rdtsc() - start
        };
        cached + u32::from(ticks < 200)
    })
}

#[test]
#[cfg(target_arch = "x86_64")]
fn every_source_line_is_dropped_from_the_caches_before_it_is_read() {
    const LEN: usize = 2 * BATCH_BYTES + 65_536;
    let source = vec![1_u8; LEN];
    let pieces = [Piece {
        dst: std::ptr::null_mut(),
        src: source.as_ptr(),
        len: LEN,
    }];
    let cached = |copy: unsafe fn(hymcache_copy::kernel::CopyFn, &[Piece], u32) -> u32| {
        std::hint::black_box(source.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        // SAFETY: count_cached only reads the source.
        unsafe { copy(count_cached, &pieces, 0) }
    };
    // The least of several tries: another process on this core can only make lines colder or a clock slower.
    let warm = (0..5).map(|_| cached(copy_pieces)).max().expect("tries");
    let cold = (0..5)
        .map(|_| cached(copy_pieces_invalidated))
        .min()
        .expect("tries");
    let lines = (LEN / 4096) as u32;
    assert!(
        warm > lines * 3 / 4 && cold < lines / 8,
        "of {lines} lines {warm} were cached, {cold} after invalidation"
    );
}
