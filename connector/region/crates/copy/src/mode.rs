//! What a kernel's loop does with the bytes it hashes: one loop is written for all three, chosen at compile time.

/// Nothing: the destination pointer is not used.
pub(crate) const HASH: u8 = 0;
/// Ordinary stores.
pub(crate) const STORE: u8 = 1;
/// Non-temporal stores.
pub(crate) const STREAM: u8 = 2;
