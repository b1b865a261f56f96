//! Unverified copies for comparison.

use core::arch::asm;
use core::arch::x86_64::{
    _mm_loadu_si128, _mm_stream_si128, _mm256_loadu_si256, _mm256_stream_si256, _mm512_loadu_si512,
    _mm512_store_si512, _mm512_stream_si512,
};

use crate::bare::{Bare, BareFn};
use crate::line;
use crate::mode::{STREAM, touch_ahead};

/// Those this CPU can run. `ahead` names prefetch a distance ahead of the loads, `touch` names touch destination pages
/// early, as the kernels do.
pub(crate) fn copies() -> Vec<Bare> {
    let bare = |name, copy| Bare { name, copy };
    let mut found = vec![
        bare("rep-movsb", movsb as BareFn),
        bare("nt128", nt128::<0, false>),
    ];
    if usable!("avx") {
        found.push(bare("nt256", nt256::<0, false>));
        found.push(bare("nt256-ahead2k", nt256::<2048, false>));
        found.push(bare("nt256-touch", nt256::<0, true>));
    }
    if usable!("avx512f") {
        found.push(bare("st512", st512::<0, false>));
        found.push(bare("nt512", nt512::<0, false>));
        found.push(bare("nt512-ahead2k", nt512::<2048, false>));
        found.push(bare("nt512-touch", nt512::<0, true>));
        found.push(bare("nt512-touch-ahead2k", nt512::<2048, true>));
    }
    found
}

unsafe fn movsb(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's ranges are valid and apart; the direction flag is clear by the ABI.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") dst => _, inout("rsi") src => _,
             options(nostack, preserves_flags));
    }
}

/// One function per vector: blocks of 256 bytes, `AHEAD` bytes of prefetch, destination pages touched early or not, a fence after non-temporal stores.
macro_rules! bare_copy {
    ($name:ident, $features:literal, $bytes:literal, $load:ident, $store:ident) => {
        #[target_feature(enable = $features)]
        unsafe fn $name<const AHEAD: usize, const TOUCH: bool>(
            dst: *mut u8,
            src: *const u8,
            len: usize,
        ) {
            for block in (0..len).step_by(256) {
                if TOUCH {
                    touch_ahead::<STREAM, 256>(dst.wrapping_add(block), block);
                }
                // SAFETY: len is a multiple of 256, dst aligned; a prefetch may point anywhere.
                unsafe {
                    if AHEAD > 0 {
                        for line in (block..block + 256).step_by(64) {
                            line::prefetch(src.wrapping_add(AHEAD + line));
                        }
                    }
                    for offset in (block..block + 256).step_by($bytes) {
                        $store(dst.add(offset).cast(), $load(src.add(offset).cast()));
                    }
                }
            }
            line::sfence();
        }
    };
}

bare_copy!(nt128, "sse2", 16, _mm_loadu_si128, _mm_stream_si128);
bare_copy!(nt256, "avx", 32, _mm256_loadu_si256, _mm256_stream_si256);
bare_copy!(
    nt512,
    "avx512f",
    64,
    _mm512_loadu_si512,
    _mm512_stream_si512
);
bare_copy!(st512, "avx512f", 64, _mm512_loadu_si512, _mm512_store_si512);
