//! Loads that the compiler can neither repeat nor merge.
//!
//! A kernel stores and hashes what it loaded, while another process may be changing the source. An ordinary load may
//! legally become two (it does: arrays of vectors are copied by a second load of the same address), and then the CRC
//! is of other bytes than the copy. Volatile loads would do, but need aligned addresses.

use core::arch::asm;
use core::arch::x86_64::{__m128i, __m256i, __m512i};

macro_rules! load {
    ($(#[$doc:meta])* $name:ident, $value:ty, $class:ident, $instruction:literal $(, $features:literal)?) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The bytes at `ptr` are readable; any alignment.
        #[inline]
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn $name(ptr: *const u8) -> $value {
            let value;
            // SAFETY: one load of what the caller says is readable.
            unsafe {
                asm!($instruction, value = out($class) value, ptr = in(reg) ptr,
                     options(nostack, preserves_flags, readonly));
            }
            value
        }
    };
}

load!(
    /// 8 bytes.
    word, u64, reg, "mov {value}, [{ptr}]"
);
load!(
    /// 16 bytes.
    vector128, __m128i, xmm_reg, "movdqu {value}, [{ptr}]", "sse2"
);
load!(
    /// 32 bytes.
    vector256, __m256i, ymm_reg, "vmovdqu {value}, [{ptr}]", "avx"
);
load!(
    /// 64 bytes.
    vector512, __m512i, zmm_reg, "vmovdqu64 {value}, [{ptr}]", "avx512f"
);

/// One byte.
///
/// # Safety
/// The byte at `ptr` is readable.
#[inline]
pub(super) unsafe fn byte(ptr: *const u8) -> u8 {
    // SAFETY: a byte is always aligned.
    unsafe { ptr.read_volatile() }
}
