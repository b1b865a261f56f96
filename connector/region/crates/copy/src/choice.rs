//! Which kernel to use for what.

use crate::kernel::{self, CopyFn, CrcFn, Kernel, by_id};
use crate::line;

/// How the destination of a get is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Into the cache.
    Ordinary,
    /// Past the cache, to memory.
    NonTemporal,
}

/// Objects below this go through the cache on a get: they fit beside what the reader does next.
pub const STREAM_BYTES_MIN: usize = 64 * 1024;

/// The kernels for one medium on one CPU: a measurement ([`crate::calibrate`]), or a guess.
#[derive(Clone, Copy)]
pub struct Choice {
    /// For a put, with its non-temporal copy.
    pub put: &'static Kernel,
    /// For a get and for checks without a copy.
    pub get: &'static Kernel,
    /// How a get of [`STREAM_BYTES_MIN`] or more stores.
    pub get_stores: Stores,
}

/// Kernels by expectation, most promising first, for puts and for gets.
///
/// Zen 4 reads faster where the source is not prefetched by hand, and a little faster in halves of a line (get, out of
/// 4 KiB pages: 1.8 against 1.7 x memcpy); Intel where it is prefetched (Emerald Rapids: 1.39 against 1.27).
const EXPECTED_ON_AMD: [[u16; 6]; 2] = [[8, 6, 4, 3, 2, 1], [6, 8, 4, 3, 2, 1]];
const EXPECTED: [[u16; 6]; 2] = [[9, 7, 4, 3, 2, 1]; 2];

impl Choice {
    /// The choice without a measurement: the kernels expected to be the best of those this CPU can run.
    pub fn guess() -> Self {
        let expected = if crate::cpu::model().contains("AMD") {
            EXPECTED_ON_AMD
        } else {
            EXPECTED
        };
        let first = |ids: [u16; 6]| {
            ids.iter()
                .find_map(|id| by_id(*id))
                .unwrap_or(kernel::portable())
        };
        let [put, get] = expected.map(first);
        Self {
            put,
            get,
            get_stores: Stores::NonTemporal,
        }
    }

    /// Everything done by the kernel that needs nothing but the language.
    pub fn portable() -> Self {
        let kernel = kernel::portable();
        Self {
            put: kernel,
            get: kernel,
            get_stores: Stores::NonTemporal,
        }
    }

    /// The copy for a put. [`line::sfence`] before publishing, in every thread that copied.
    pub fn put_copy(&self) -> CopyFn {
        self.put.copy_nt_crc
    }

    /// The copy for a get of an object of `object_bytes`, however many pages that is cut into; from
    /// a foreign software domain, hand it to [`crate::copy_pieces_invalidated`].
    /// [`line::sfence`] before another thread or device reads the destination.
    pub fn get_copy(&self, object_bytes: usize) -> CopyFn {
        if self.get_stores == Stores::NonTemporal && object_bytes >= STREAM_BYTES_MIN {
            self.get.copy_nt_crc
        } else {
            self.get.copy_crc
        }
    }

    /// CRC32C without a copy.
    pub fn crc(&self) -> CrcFn {
        self.get.crc
    }

    /// One line for `info()` and benchmarks: `put vpclmul512-ahead2k, get vpclmul512-ahead2k streaming`.
    pub fn describe(&self) -> String {
        let stores = match self.get_stores {
            Stores::Ordinary => "ordinary",
            Stores::NonTemporal => "streaming",
        };
        format!(
            "put {}, get {} {stores}, {:?}",
            self.put.name,
            self.get.name,
            line::flush_kind()
        )
    }
}

impl core::fmt::Debug for Choice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.describe())
    }
}
