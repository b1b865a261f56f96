//! Known-answer test: what a kernel must give before it may touch anybody's bytes.

use crate::kernel::Kernel;
use crate::{crc, line};

/// Lengths around every step a kernel's loops take: a line, folds of 256 and 512 bytes, interleaves, tiles.
const LENGTHS: [usize; 11] = [
    0,
    1,
    63,
    64,
    65,
    200,
    511,
    512,
    1600,
    4096,
    16 * 1024 + 3 * 64 + 5,
];
const SKEWS: [(usize, usize); 3] = [(0, 0), (3, 17), (64, 8)];
const ROOM: usize = 16 * 1024 + 1024;
const GUARD: u8 = 0xA5;
/// Bytes behind the destination that must stay as they are: more than the widest step.
const GUARD_BYTES: usize = 256;

/// Runs all three functions over inputs whose CRC the tables know; an error names function and input.
pub(crate) fn check(kernel: &Kernel) -> Result<(), String> {
    let source: Vec<u8> = (0..ROOM as u32)
        .map(|i| (i.wrapping_mul(0x9E37_79B1) >> 24) as u8)
        .collect();
    let mut target = vec![GUARD; ROOM];
    for (length, (dst_skew, src_skew)) in LENGTHS
        .iter()
        .flat_map(|l| SKEWS.iter().map(move |s| (*l, *s)))
    {
        let wanted = &source[src_skew..src_skew + length];
        let expected = crc::crc32c(0x1234_5678, wanted);
        let at = |what: &str| {
            format!("{what} of {length} bytes, destination skew {dst_skew}, source skew {src_skew}")
        };
        // SAFETY: the slice is readable for its length.
        let found = unsafe { (kernel.crc)(wanted.as_ptr(), length, 0x1234_5678) };
        if found != expected {
            return Err(format!(
                "{}: CRC {found:#010x}, expected {expected:#010x}",
                at("crc")
            ));
        }
        for (what, copy) in [
            ("copy_crc", kernel.copy_crc),
            ("copy_nt_crc", kernel.copy_nt_crc),
        ] {
            let target = &mut target[..dst_skew + length + GUARD_BYTES];
            target.fill(GUARD);
            // SAFETY: both ranges lie inside their own vectors.
            let found = unsafe {
                copy(
                    target.as_mut_ptr().add(dst_skew),
                    wanted.as_ptr(),
                    length,
                    0x1234_5678,
                )
            };
            line::sfence();
            let (before, rest) = target.split_at(dst_skew);
            let (copied, after) = rest.split_at(length);
            if found != expected {
                return Err(format!(
                    "{}: CRC {found:#010x}, expected {expected:#010x}",
                    at(what)
                ));
            }
            if copied != wanted {
                return Err(format!("{}: the copy differs from the source", at(what)));
            }
            if before.iter().chain(after).any(|byte| *byte != GUARD) {
                return Err(format!(
                    "{}: bytes outside the destination were written",
                    at(what)
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_a_wrong_crc_a_wrong_copy_or_a_stray_store_is_refused_by_name() {
        unsafe fn no_copy(_: *mut u8, src: *const u8, len: usize, crc: u32) -> u32 {
            // SAFETY: src is readable for len.
            unsafe { (crate::portable::KERNEL.crc)(src, len, crc) }
        }
        unsafe fn stray(dst: *mut u8, src: *const u8, len: usize, crc: u32) -> u32 {
            // SAFETY: check() leaves room behind the destination.
            unsafe {
                *dst.add(len) = 0;
                (crate::portable::KERNEL.copy_crc)(dst, src, len, crc)
            }
        }
        let good = crate::portable::KERNEL;
        assert_eq!(check(&good), Ok(()));
        let wrong_crc = Kernel {
            crc: |_, _, crc| crc ^ 1,
            ..good
        };
        assert!(check(&wrong_crc).unwrap_err().starts_with("crc of 0 bytes"));
        assert!(
            check(&Kernel {
                copy_crc: no_copy,
                ..good
            })
            .unwrap_err()
            .contains("differs from the source")
        );
        assert!(
            check(&Kernel {
                copy_nt_crc: stray,
                ..good
            })
            .unwrap_err()
            .contains("outside the destination")
        );
    }
}
