//! What a kernel's loop does with the bytes it hashes: one loop is written for all three, chosen at compile time.

use crate::line;

/// Nothing: the destination pointer is not used.
pub(crate) const HASH: u8 = 0;
/// Ordinary stores.
pub(crate) const STORE: u8 = 1;
/// Non-temporal stores.
pub(crate) const STREAM: u8 = 2;

/// The smallest page: where stores may need a new translation.
const PAGE_BYTES: usize = 4096;
/// How far ahead of the stores a page is touched.
const TOUCH_BYTES: usize = 2 * PAGE_BYTES;

/// Once in every page of offsets, fetches one line of a destination page that the stores will reach soon.
///
/// Nothing prefetches for non-temporal stores: the first into a page waits for the walk of the page tables (two sets of
/// them in a virtual machine), and every store behind it waits too. A prefetch makes that walk early. On Zen 4 this
/// doubles the speed of a copy into 4 KiB pages, and costs nothing in huge ones. The source is better left alone: there
/// such jumps mislead the prefetchers that follow the loads.
///
/// Called at every offset that is a multiple of `STEP`, a power of two. The address may lie beyond the destination,
/// even unmapped: a prefetch never faults, and the CPU may fetch any line on its own at any time.
#[inline]
pub(crate) fn touch_ahead<const MODE: u8, const STEP: usize>(dst: *mut u8, offset: usize) {
    if MODE != HASH && offset % PAGE_BYTES < STEP {
        line::prefetch(dst.wrapping_add(TOUCH_BYTES));
    }
}
