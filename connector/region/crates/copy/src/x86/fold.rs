//! CRC32C by carry-less multiplication, fused with the copy: each vector is loaded once, stored and folded.
//!
//! Folding (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009): four
//! accumulators each take every fourth vector; an accumulator moves over the `D` bytes to its next vector by
//! multiplying its halves with x^(8D+31) and x^(8D-33) modulo P. The 31 and 33 instead of 64 and 0 undo what the
//! reflected product of a 64-bit and a 32-bit value is shifted by. At the end the accumulators become one, and the
//! CRC32 instruction reduces that.
//!
//! One macro writes the loop for three vector widths; the widths differ in intrinsics alone.

use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128,
    _mm_set_epi64x, _mm_store_si128, _mm_stream_si128, _mm_xor_si128, _mm256_broadcastsi128_si256,
    _mm256_clmulepi64_epi128, _mm256_store_si256, _mm256_stream_si256, _mm256_xor_si256,
    _mm256_zextsi128_si256, _mm512_broadcast_i32x4, _mm512_clmulepi64_epi128, _mm512_store_si512,
    _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::edges::Middle;
use super::load;
use super::sse42;
use crate::crc::power;
use crate::line;
use crate::mode::{STORE, STREAM, touch_ahead};

/// Multipliers that move an accumulator `bytes` further: for its low half and for its high half.
const fn over(bytes: u128) -> [u64; 2] {
    [power(8 * bytes + 31) as u64, power(8 * bytes - 33) as u64]
}

macro_rules! fold_kernel {
    (
        $(#[$doc:meta])* $kernel:ident, $inner:ident, features: $features:literal, vector: $vector:ty,
        bytes: $bytes:literal, load: $load:ident, store: $store:ident, stream: $stream:ident,
        broadcast: $broadcast:expr, seed: $seed:expr, multiply: $multiply:ident, xor: $xor:ident, xor3: $xor3:expr,
    ) => {
        $(#[$doc])*
        ///
        /// `AHEAD` is how many bytes ahead of the load the source is prefetched, 0 for not at all.
        pub(super) struct $kernel<const AHEAD: usize>;

        // SAFETY: `candidates` offers it only where CPUID has the features named here.
        unsafe impl<const AHEAD: usize> Middle for $kernel<AHEAD> {
            unsafe fn run<const MODE: u8>(dst: *mut u8, src: *const u8, len: usize, state: u32) -> u32 {
                // SAFETY: passed on.
                unsafe { $inner::run::<MODE, AHEAD>(dst, src, len, state) }
            }
        }

        mod $inner {
            use super::*;

            const STEP: usize = 4 * $bytes;

            #[inline]
            #[target_feature(enable = $features)]
            fn fold(accumulator: $vector, factors: $vector, next: $vector) -> $vector {
                let low = $multiply::<0x00>(accumulator, factors);
                let high = $multiply::<0x11>(accumulator, factors);
                $xor3(low, high, next)
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn factors<const BYTES: u64>() -> $vector {
                let [low, high] = const { over(BYTES as u128) };
                $broadcast(_mm_set_epi64x(high.cast_signed(), low.cast_signed()))
            }

            /// Four accumulators to a CRC register.
            #[inline]
            #[target_feature(enable = $features)]
            fn reduce([a, b, c, d]: [$vector; 4]) -> u32 {
                let last = $xor(
                    fold(a, factors::<{ 3 * $bytes }>(), fold(b, factors::<{ 2 * $bytes }>(), d)),
                    fold(c, factors::<$bytes>(), $xor(d, d)),
                );
                // SAFETY: same size, any bits are valid words.
                let words: [u64; $bytes / 8] = unsafe { core::mem::transmute(last) };
                words.iter().fold(0, |register, word| _mm_crc32_u64(register, *word)) as u32
            }

            /// Loads four vectors and stores them as the mode says.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn step<const MODE: u8, const AHEAD: usize>(dst: *mut u8, src: *const u8) -> [$vector; 4] {
                if AHEAD > 0 {
                    for line in (0..STEP).step_by(64) {
                        line::prefetch(src.wrapping_add(AHEAD + line));
                    }
                }
                // SAFETY: the caller has STEP bytes at src, and at dst, aligned, unless the mode is HASH.
                unsafe {
                    let vectors = core::array::from_fn(|i| load::$load(src.add(i * $bytes)));
                    for (i, vector) in vectors.iter().enumerate() {
                        match MODE {
                            STORE => $store(dst.add(i * $bytes).cast(), *vector),
                            STREAM => $stream(dst.add(i * $bytes).cast(), *vector),
                            _ => (),
                        }
                    }
                    vectors
                }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn run<const MODE: u8, const AHEAD: usize>(
                dst: *mut u8, src: *const u8, len: usize, mut state: u32,
            ) -> u32 {
                let at = |offset: usize| (dst.wrapping_add(offset), src.wrapping_add(offset));
                let whole = len / STEP * STEP;
                let k = factors::<{ STEP as u64 }>();
                // SAFETY: every step ends at or before `whole`, the rest is whole lines.
                unsafe {
                    if whole > 0 {
                        let mut acc = step::<MODE, AHEAD>(dst, src);
                        acc[0] = $xor(acc[0], $seed(_mm_cvtsi32_si128(state.cast_signed())));
                        let mut offset = STEP;
                        // The last AHEAD bytes are loaded without fetching what lies beyond the source.
                        while offset + AHEAD < whole {
                            let (dst, src) = at(offset);
                            touch_ahead::<MODE, STEP>(dst, offset);
                            let next = step::<MODE, AHEAD>(dst, src);
                            acc = core::array::from_fn(|i| fold(acc[i], k, next[i]));
                            offset += STEP;
                        }
                        while offset < whole {
                            let (dst, src) = at(offset);
                            touch_ahead::<MODE, STEP>(dst, offset);
                            let next = step::<MODE, 0>(dst, src);
                            acc = core::array::from_fn(|i| fold(acc[i], k, next[i]));
                            offset += STEP;
                        }
                        state = reduce(acc);
                    }
                    let (dst, src) = at(whole);
                    sse42::run::<MODE>(dst, src, len - whole, state)
                }
            }
        }
    };
}

fold_kernel! {
    /// 128-bit vectors: PCLMULQDQ, every x86-64 server since 2010.
    Fold128, fold128, features: "sse4.2,pclmulqdq", vector: __m128i,
    bytes: 16, load: vector128, store: _mm_store_si128, stream: _mm_stream_si128,
    broadcast: |k| k, seed: |s| s, multiply: _mm_clmulepi64_si128, xor: _mm_xor_si128,
    xor3: |a, b, c| _mm_xor_si128(_mm_xor_si128(a, b), c),
}

fold_kernel! {
    /// 256-bit vectors: VPCLMULQDQ without AVX-512 (Zen 3, Alder Lake).
    Fold256, fold256, features: "sse4.2,avx2,vpclmulqdq,pclmulqdq", vector: __m256i,
    bytes: 32, load: vector256, store: _mm256_store_si256, stream: _mm256_stream_si256,
    broadcast: _mm256_broadcastsi128_si256, seed: _mm256_zextsi128_si256, multiply: _mm256_clmulepi64_epi128,
    xor: _mm256_xor_si256, xor3: |a, b, c| _mm256_xor_si256(_mm256_xor_si256(a, b), c),
}

fold_kernel! {
    /// 512-bit vectors: VPCLMULQDQ with AVX-512 (Ice Lake, Zen 4 and later).
    Fold512, fold512, features: "sse4.2,avx512f,vpclmulqdq,pclmulqdq", vector: __m512i,
    bytes: 64, load: vector512, store: _mm512_store_si512, stream: _mm512_stream_si512,
    broadcast: _mm512_broadcast_i32x4, seed: _mm512_zextsi128_si512, multiply: _mm512_clmulepi64_epi128,
    xor: _mm512_xor_si512, xor3: |a, b, c| _mm512_ternarylogic_epi64::<0x96>(a, b, c),
}
