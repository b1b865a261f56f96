//! Which host this is, and which of its boots.

use crate::error::{RegionError, Result};
use sha2::{Digest as _, Sha256};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Identity of this boot: the same in every container of the host.
///
/// # Errors
/// The kernel does not tell.
pub fn boot_id() -> Result<[u8; 16]> {
    let text =
        std::fs::read_to_string(BOOT_ID).map_err(|error| RegionError::io(BOOT_ID, &error))?;
    Ok(id_of(text.trim()))
}

/// Identity of a host from its name (a system UUID, or whatever the node agent calls it).
pub fn host_id(name: &str) -> [u8; 16] {
    id_of(name)
}

/// Short name of a file of this host.
pub fn file_name(device: u64, inode: u64) -> u32 {
    let [a, b, c, d, ..] = id_of(&format!("{device}:{inode}"));
    u32::from_le_bytes([a, b, c, d])
}

/// Text of any length as 16 bytes; letter case does not matter, as firmware and kernels disagree on it.
fn id_of(text: &str) -> [u8; 16] {
    let digest = Sha256::digest(text.to_ascii_lowercase().as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    id
}

/// Random bytes for a uuid of version 4.
///
/// # Errors
/// The kernel does not give any.
pub fn random_uuid() -> Result<[u8; 16]> {
    use std::io::Read as _;
    let mut uuid = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut uuid))
        .map_err(|error| RegionError::io("/dev/urandom", &error))?;
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    Ok(uuid)
}
