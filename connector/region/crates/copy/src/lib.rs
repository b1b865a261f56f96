//! Copy kernels of `HyMCache`: one pass that moves bytes and computes their CRC32C.
//!
//! Copying KV pages into and out of a region is the product's hot path, and every byte read back is verified.
//! Which code does both fastest depends on the CPU and the memory behind the mapping, so this crate offers several
//! *kernels* with one contract ([`Kernel`]) and a way to choose between them by measurement.
//!
//! | module | what it knows |
//! |---|---|
//! | [`line`] | cache lines: flush, write back, invalidate, fences |
//! | [`crc`] | CRC32C arithmetic: small buffers, combine |
//! | [`kernel`] | the contract and the list of kernels this CPU can run |
//! | [`pieces`] | objects in pieces, reads of memory that other hosts write, shares for threads |
//! | [`choice`] | which kernel for what |
//! | [`mod@calibrate`], [`remember`] | choosing by measurement, keeping the choice |
//! | [`bare`] | unverified copies, for benchmarks to compare with |
//!
//! CRC here is always CRC32C (Castagnoli, RFC 3720 appendix B.4) in its finished form: `0` starts a message and
//! `f(f(0, a), b)` is the CRC of `a || b`.
//!
//! Nothing on the copy path allocates, faults pages in, or calls the kernel.

mod answers;
pub mod bare;
pub mod calibrate;
pub mod choice;
mod cpu;
pub mod crc;
pub mod kernel;
pub mod line;
mod mode;
pub mod pieces;
mod portable;
pub mod remember;
mod trial;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use calibrate::{Measured, Medium, calibrate, survey};
pub use choice::{Choice, Stores};
pub use crc::{crc_combine, crc32c};
pub use kernel::{Dropped, Kernel, by_id, dropped, kernels, portable};
pub use pieces::{Piece, copy_pieces, copy_pieces_invalidated, share};
pub use remember::{Origin, remembered};
