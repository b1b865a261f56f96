//! Unverified copies for comparison.

use core::arch::asm;
use core::arch::x86_64::{
    _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_stream_si128, _mm256_loadu_si256,
    _mm256_stream_si256, _mm512_loadu_si512, _mm512_store_si512, _mm512_stream_si512,
};

use crate::bare::Bare;
use crate::line;

pub(crate) fn copies() -> Vec<Bare> {
    let mut found = vec![
        Bare {
            name: "rep-movsb",
            copy: movsb,
        },
        Bare {
            name: "nt128",
            copy: nt128,
        },
    ];
    if is_x86_feature_detected!("avx") {
        found.push(Bare {
            name: "nt256",
            copy: nt256::<0>,
        });
        found.push(Bare {
            name: "nt256-ahead2k",
            copy: nt256::<2048>,
        });
    }
    if is_x86_feature_detected!("avx512f") {
        found.push(Bare {
            name: "st512",
            copy: st512,
        });
        found.push(Bare {
            name: "nt512",
            copy: nt512::<0>,
        });
        found.push(Bare {
            name: "nt512-ahead2k",
            copy: nt512::<2048>,
        });
        found.push(Bare {
            name: "nt512-ahead4k",
            copy: nt512::<4096>,
        });
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

/// One function per vector: blocks of 256 bytes, `AHEAD` bytes of prefetch, a fence after non-temporal stores.
macro_rules! bare_copy {
    ($name:ident, $features:literal, $bytes:literal, $load:ident, $store:ident) => {
        #[target_feature(enable = $features)]
        unsafe fn $name<const AHEAD: usize>(dst: *mut u8, src: *const u8, len: usize) {
            for block in (0..len).step_by(256) {
                // SAFETY: len is a multiple of 256, dst aligned; a prefetch may point anywhere.
                unsafe {
                    if AHEAD > 0 {
                        for line in (block..block + 256).step_by(64) {
                            _mm_prefetch::<_MM_HINT_T0>(src.wrapping_add(AHEAD + line).cast());
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

bare_copy!(nt128_ahead, "sse2", 16, _mm_loadu_si128, _mm_stream_si128);
bare_copy!(nt256, "avx", 32, _mm256_loadu_si256, _mm256_stream_si256);
bare_copy!(
    nt512,
    "avx512f",
    64,
    _mm512_loadu_si512,
    _mm512_stream_si512
);
bare_copy!(
    st512_ahead,
    "avx512f",
    64,
    _mm512_loadu_si512,
    _mm512_store_si512
);

unsafe fn nt128(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: passed on.
    unsafe { nt128_ahead::<0>(dst, src, len) }
}

unsafe fn st512(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: passed on.
    unsafe { st512_ahead::<0>(dst, src, len) }
}
