//! Three independent chains of CRC32 instructions over three neighbouring lanes, joined by carry-less multiplication.
//!
//! One chain waits 3 cycles for every 8 bytes; three chains keep the unit busy where it is pipelined (Gopal et al.,
//! "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel 2011). Needs SSE4.2 and PCLMULQDQ.

use core::arch::x86_64::{
    _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    _mm_xor_si128,
};

use super::edges::Middle;
use super::sse42;
use crate::crc::power;
use crate::line::LINE_BYTES;
use crate::mode::touch_ahead;

/// Lane lengths, multiples of a line. The long one is short enough for three lanes to look like one stream to the
/// prefetcher: on Zen 4, out of memory, lanes of 512 bytes and more run at half the speed of 256. The short one serves
/// what is left.
const LANES: [usize; 2] = [256, 64];

pub(super) struct Interleaved;

// SAFETY: `candidates` offers it only where CPUID has SSE4.2 and PCLMULQDQ.
unsafe impl Middle for Interleaved {
    unsafe fn run<const MODE: u8>(dst: *mut u8, src: *const u8, len: usize, state: u32) -> u32 {
        // SAFETY: passed on.
        unsafe { run::<MODE>(dst, src, len, state) }
    }
}

#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn run<const MODE: u8>(dst: *mut u8, src: *const u8, len: usize, state: u32) -> u32 {
    let at = |offset: usize| {
        (
            dst.wrapping_add(offset),
            src.wrapping_add(offset),
            len - offset,
        )
    };
    // SAFETY: each part covers a prefix of what the one before left, whole lines all.
    unsafe {
        let (long, state) = lanes::<{ LANES[0] }, MODE>(dst, src, len, state);
        let (dst, src, left) = at(long);
        let (short, state) = lanes::<{ LANES[1] }, MODE>(dst, src, left, state);
        let (dst, src, left) = at(long + short);
        sse42::run::<MODE>(dst, src, left, state)
    }
}

/// As many blocks of three lanes as fit; returns their bytes and the register.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn lanes<const LANE: usize, const MODE: u8>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    state: u32,
) -> (usize, u32) {
    let whole = len / (3 * LANE) * (3 * LANE);
    let mut register = u64::from(state);
    for block in (0..whole).step_by(3 * LANE) {
        let mut chains = [register, 0, 0];
        // Blocks are no power of two: more than a block's bytes, so that no page is left out, and some come twice.
        touch_ahead::<MODE, 1024>(dst.wrapping_add(block), block);
        for line in (0..LANE).step_by(LINE_BYTES) {
            for (lane, chain) in chains.iter_mut().enumerate() {
                let from = block + lane * LANE + line;
                for offset in (from..from + LINE_BYTES).step_by(8) {
                    // SAFETY: offset + 8 <= whole <= len, and dst is aligned.
                    *chain = unsafe {
                        sse42::word::<MODE>(dst.wrapping_add(offset), src.add(offset), *chain)
                    };
                }
            }
        }
        register = join::<LANE>(chains);
    }
    (whole, register as u32)
}

/// The register after three lanes, from each lane's own.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn join<const LANE: usize>([first, second, third]: [u64; 3]) -> u64 {
    let over_two = const { power(8 * 2 * LANE as u128 - 33) }.cast_signed();
    let over_one = const { power(8 * LANE as u128 - 33) }.cast_signed();
    let moved = _mm_xor_si128(
        _mm_clmulepi64_si128::<0>(
            _mm_cvtsi64_si128(first.cast_signed()),
            _mm_cvtsi32_si128(over_two),
        ),
        _mm_clmulepi64_si128::<0>(
            _mm_cvtsi64_si128(second.cast_signed()),
            _mm_cvtsi32_si128(over_one),
        ),
    );
    _mm_crc32_u64(0, _mm_cvtsi128_si64(moved).cast_unsigned()) ^ third
}
