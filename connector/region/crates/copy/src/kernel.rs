//! The contract every copy kernel keeps, and the list of kernels this CPU can run.

use std::sync::OnceLock;

/// Number of the list of kernels: raised when one is added, removed or changed, or measured in another way, so that old
/// choices are forgotten.
pub const TABLE_VERSION: u32 = 2;

/// `unsafe fn(dst, src, len, crc) -> crc`: copies and returns the CRC32C continued from `crc`.
pub type CopyFn = unsafe fn(*mut u8, *const u8, usize, u32) -> u32;

/// `unsafe fn(ptr, len, crc) -> crc`: CRC32C continued from `crc`, nothing stored.
pub type CrcFn = unsafe fn(*const u8, usize, u32) -> u32;

/// One way to copy and hash. Calls are pure functions of their arguments: any thread, no state, no allocation.
///
/// For all three functions:
/// - `src..src + len` is readable and `dst..dst + len` writable for the whole call, the two do not overlap; any length
///   (0 included) and any alignment is right, 64-byte aligned `dst` with `len` a multiple of 64 is fast;
/// - not one byte outside `dst..dst + len` is written;
/// - **each source byte is loaded once**: the CRC is that of the bytes that were stored in `dst`, even while somebody
///   else overwrites the source. A checked copy of a torn source therefore fails its check;
/// - the returned CRC is the finished CRC32C of (what `crc` stood for) followed by these bytes.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Number that names this code for ever: what a calibration stores. Never reused for other code.
    pub id: u16,
    /// Name in `info()` and in benchmarks.
    pub name: &'static str,
    /// Copy with ordinary stores: the destination ends in the cache.
    pub copy_crc: CopyFn,
    /// Copy with non-temporal stores: the destination is on its way to memory and no line of it stays dirty in a
    /// cache (partial lines at the edges are flushed), where [`crate::line::reaches_memory`]. The caller issues [`crate::line::sfence`] before publishing.
    pub copy_nt_crc: CopyFn,
    /// CRC32C alone.
    pub crc: CrcFn,
}

/// A kernel this CPU has the instructions for, but which gave a wrong answer.
#[derive(Clone, Debug)]
pub struct Dropped {
    /// Its name.
    pub name: &'static str,
    /// Which function failed, on which input, with what.
    pub reason: String,
}

struct Table {
    usable: Vec<Kernel>,
    dropped: Vec<Dropped>,
}

static TABLE: OnceLock<Table> = OnceLock::new();

/// Tests every candidate once per process; the portable kernel is the yardstick and always first.
fn table() -> &'static Table {
    TABLE.get_or_init(|| {
        let mut table = Table {
            usable: vec![crate::portable::KERNEL],
            dropped: Vec::new(),
        };
        for kernel in candidates() {
            match crate::answers::check(&kernel) {
                Ok(()) => table.usable.push(kernel),
                Err(reason) => table.dropped.push(Dropped {
                    name: kernel.name,
                    reason,
                }),
            }
        }
        table
    })
}

#[cfg(target_arch = "x86_64")]
fn candidates() -> Vec<Kernel> {
    crate::x86::candidates()
}

#[cfg(not(target_arch = "x86_64"))]
fn candidates() -> Vec<Kernel> {
    Vec::new()
}

/// The kernels this CPU can run and that passed the known-answer test, portable first.
pub fn kernels() -> &'static [Kernel] {
    &table().usable
}

/// Kernels left out because they answered wrongly here. Empty on healthy hardware.
pub fn dropped() -> &'static [Dropped] {
    &table().dropped
}

/// The kernel that needs nothing but the language.
pub fn portable() -> &'static Kernel {
    &kernels()[0]
}

/// The kernel with this number, if this CPU can run it.
pub fn by_id(id: u16) -> Option<&'static Kernel> {
    kernels().iter().find(|kernel| kernel.id == id)
}
