//! Writing an empty region. The only place that ever overwrites a superblock, and only one it was told to.

use crate::buffers::Piece;
use crate::core::Identity;
use crate::domain;
use crate::error::{ErrorKind, RegionError, Result};
use crate::layout::{Counter, Layout, SUPERBLOCK_BYTES};
use crate::mapped::Mapped;
use crate::memory::{Memory, Step};
use crate::os::file::{Medium, Target};
use crate::os::lock::{Hold, Locks};
use crate::os::map::Mapping;
use crate::os::{clock, host, sigbus};
use crate::plan::plan;
use crate::superblock::{BYTES, MAGIC, Progress, STATE_WORD_AT, Superblock, uuid_text};
use crate::words::FreeChunks;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// What a format is asked for.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// Bytes of the region; `None` = all of the medium. A missing file is created with this size.
    pub size: Option<u64>,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Domains.
    pub domains: u32,
    /// True where hosts see one another's stores without flushes.
    pub hardware: bool,
    /// Identity; `None` = random.
    pub uuid: Option<[u8; 16]>,
    /// Objects expected; `None` = one per chunk.
    pub objects: Option<u64>,
    /// Epoch of the region that this one replaces; `None` = there must be none.
    pub replaces: Option<u64>,
    /// Epoch of the new region; `None` = one more than it replaces.
    pub epoch: Option<u64>,
    /// Where locks are taken when the medium is a device.
    pub lock_file: Option<PathBuf>,
    /// Zero every byte of the medium, and so give up whatever another owner left there. A region of this `uuid` is
    /// still replaced only by name.
    pub clear: bool,
}

/// Formats `target` and returns its superblock.
///
/// # Errors
/// Bad numbers, a medium that holds something else, processes that are attached, another format that is running.
pub fn format(target: &Target, options: &FormatOptions) -> Result<(Superblock, Layout)> {
    if let Some(size) = options.size {
        planned(options, size, 1)?; // before a file is created for it
    }
    if !options.hardware && options.domains > 1 && !hymcache_copy::line::reaches_memory() {
        return Err(RegionError::invalid(
            "domains: this machine cannot flush cache lines, so a software-coherent region has one domain",
        ));
    }
    let mut medium = Medium::open_or_create(target, options.size)?;
    let locks = Locks::open(&medium, options.lock_file.as_deref())?;
    let formatted = format_locked(&mut medium, &locks, options);
    if let (true, Err(error), Target::Path(path)) = (medium.is_new, &formatted, target)
        && error.kind != ErrorKind::Busy
    {
        let _ = std::fs::remove_file(path); // ours alone: nobody else held its lock
    }
    formatted
}

fn planned(options: &FormatOptions, bytes: u64, page_bytes: u64) -> Result<Layout> {
    let (chunk_bytes, objects) = (options.chunk_bytes, options.objects);
    plan(bytes, chunk_bytes, options.domains, objects, page_bytes)
}

/// Formats a medium that nobody else formats or uses.
fn format_locked(
    medium: &mut Medium,
    locks: &Locks,
    options: &FormatOptions,
) -> Result<(Superblock, Layout)> {
    let name = medium.name.clone();
    let busy = |who: &str| {
        let message = format!("{name}: {who}; detach them, or wait, and format again");
        Err(RegionError::new(ErrorKind::Busy, message))
    };
    if !locks.try_lock(0, BYTES as u64, Hold::Alone)? {
        return busy("another process formats or attaches it right now");
    }
    if locks.is_held_elsewhere(BYTES as u64, i64::MAX.unsigned_abs() - BYTES as u64)? {
        return busy("processes of this host are attached to it");
    }
    let uuid = options.uuid.map_or_else(host::random_uuid, Ok)?;
    // Between its making and the lock somebody else may have formatted the new file: then it is not ours to remove.
    let is_new = std::mem::take(&mut medium.is_new);
    let replaced = judge_old(medium, options, &uuid)?;
    medium.is_new = is_new && replaced == 0;
    let epoch = options.epoch.unwrap_or(replaced.wrapping_add(1));
    if epoch == 0 || epoch < replaced {
        return Err(RegionError::invalid(format!(
            "epoch: expected more than {replaced}, which it replaces, found {epoch}"
        )));
    }
    let bytes = options.size.unwrap_or(medium.bytes);
    let layout = planned(options, bytes, medium.page_bytes)?;
    medium.allocate(layout.geometry.bytes)?;
    let superblock = Superblock {
        identity: Identity {
            uuid,
            epoch,
            software: !options.hardware,
            formatted_seconds: clock::now_ms() / 1000,
        },
        geometry: layout.geometry.clone(),
        progress: Progress::Ready,
        read_only_features: 0,
    };
    let zeroed = if options.clear {
        medium.bytes
    } else {
        layout.pool_at
    };
    write(medium, &superblock, &layout, zeroed)?;
    Ok((superblock, layout))
}

/// What is on the medium already: the epoch that is replaced, 0 for none.
fn judge_old(medium: &Medium, options: &FormatOptions, uuid: &[u8; 16]) -> Result<u64> {
    let page = first_page(medium)?;
    if page.iter().all(|&b| b == 0) {
        return Ok(0);
    }
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(&page[..BYTES]);
    if options.clear && (bytes[..8] != MAGIC || bytes[40..56] != uuid[..]) {
        return Ok(0); // another owner's
    }
    let name = match Superblock::decode(&medium.name, &bytes, medium.bytes) {
        Ok((old, _)) => format!("region {}", uuid_text(&old.identity.uuid)),
        Err(error)
            if matches!(error.kind, ErrorKind::Newer | ErrorKind::Foreign)
                || bytes[..8] != MAGIC =>
        {
            let kind = if bytes[..8] == MAGIC {
                error.kind
            } else {
                ErrorKind::Foreign
            };
            let how = if options.clear {
                "zero its first page"
            } else {
                "pass clear=True (--clear)"
            };
            return Err(RegionError::new(
                kind,
                format!(
                    "{}. It is left untouched: {how} to give it up",
                    error.message
                ),
            ));
        }
        // Its epoch still has to be named.
        Err(error) if error.kind == ErrorKind::Older => "a region of an older layout".into(),
        Err(_) => "a damaged region".into(),
    };
    let mut epoch = [0; 8];
    epoch.copy_from_slice(&bytes[56..64]);
    let epoch = u64::from_le_bytes(epoch);
    let unfinished =
        u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) != Progress::Ready as u32;
    if unfinished && (epoch == 0 || bytes[40..56] == uuid[..] && options.epoch == Some(epoch)) {
        return Ok(epoch); // the same format, which died half-way
    }
    if options.replaces == Some(epoch) {
        if options.epoch.is_some_and(|new| new <= epoch) {
            return Err(RegionError::invalid(format!(
                "epoch: expected more than {epoch}, which it replaces"
            )));
        }
        return Ok(epoch);
    }
    let asked = options
        .replaces
        .map_or_else(|| "nothing".into(), |n| format!("epoch {n}"));
    Err(RegionError::new(
        ErrorKind::Exists,
        format!(
            "{}: holds {name} of epoch {epoch}, but {asked} is to be replaced; pass replaces={epoch} to give it up",
            medium.name
        ),
    ))
}

/// The first page of the medium; what lies past its end counts as zeros.
fn first_page(medium: &Medium) -> Result<Vec<u8>> {
    let mut page = vec![0; SUPERBLOCK_BYTES as usize];
    if medium.is_device {
        sigbus::unblock();
        let mapped = Mapped::new(Mapping::new(medium)?, hymcache_copy::Choice::portable());
        mapped.invalidate(0, SUPERBLOCK_BYTES, Step::SuperblockInvalidate);
        mapped.full_fence(Step::SuperblockFence);
        for (i, word) in page.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mapped.load(8 * i as u64).to_le_bytes());
        }
        if !mapped.is_intact() {
            return Err(holes(medium)); // what was read are the zeros that cover a hole
        }
        return Ok(page);
    }
    let some = page
        .len()
        .min(usize::try_from(medium.bytes).unwrap_or(usize::MAX));
    medium
        .file
        .read_exact_at(&mut page[..some], 0)
        .map_err(|error| RegionError::io(&medium.name, &error))?;
    Ok(page)
}

/// Writes all metadata, after zeros from the superblock's end up to `zeroed`.
fn write(medium: &Medium, superblock: &Superblock, layout: &Layout, zeroed: u64) -> Result<()> {
    sigbus::unblock();
    let mapped = Mapped::new(Mapping::new(medium)?, hymcache_copy::Choice::portable());
    mapped.mapping().allow_stores(0, zeroed)?;
    write_over(&mapped, superblock, layout, zeroed);
    if mapped.is_intact() {
        return Ok(());
    }
    Err(holes(medium))
}

fn holes(medium: &Medium) -> RegionError {
    let message = format!(
        "{}: the medium has holes; it was not formatted",
        medium.name
    );
    RegionError::new(ErrorKind::Io, message)
}

/// Writes everything before the pool: a superblock that says so first, one that says ready last. Zeros and counters are
/// in memory by then: fences of later stores (sealed lines, the superblock) come between.
pub fn write_metadata<M: Memory>(mem: &M, superblock: &Superblock, layout: &Layout) {
    write_over(mem, superblock, layout, layout.pool_at);
}

fn write_over<M: Memory>(mem: &M, superblock: &Superblock, layout: &Layout, zeroed: u64) {
    let formatting = Superblock {
        progress: Progress::Formatting,
        ..superblock.clone()
    };
    store_superblock(mem, &formatting.encode(layout));
    zero(mem, BYTES as u64, zeroed - BYTES as u64);
    for domain in 0..layout.geometry.domains {
        domain::format_domain(mem, layout, domain);
        let free = layout.counter(domain, Counter::FreeChunks);
        let count = FreeChunks::new(layout.geometry.domain_chunks.into());
        mem.store(free, count.0);
        mem.flush(free, 8, Step::FormatCountersFlush);
    }
    store_superblock(mem, &superblock.encode(layout));
}

fn zero<M: Memory>(mem: &M, at: u64, len: u64) {
    let mut zeros = vec![0; 64 << 10];
    for offset in (0..len).step_by(zeros.len()) {
        let part = (zeros.len() as u64).min(len - offset) as usize;
        // SAFETY: the vector outlives the call and is only read.
        let piece = unsafe { Piece::new(zeros.as_mut_ptr(), part) };
        mem.copy_in(at + offset, piece, 0);
    }
}

/// Stores a superblock. Until its last store, which is the state's, whoever looks finds a format under way: first the
/// state says so, and while it does a checksum that does not hold means the same.
fn store_superblock<M: Memory>(mem: &M, bytes: &[u8; BYTES]) {
    let word = |at: u64| {
        let mut value = [0; 8];
        value.copy_from_slice(&bytes[at as usize..at as usize + 8]);
        u64::from_le_bytes(value)
    };
    let store_state = |progress: u64, flush: Step, fence: Step| {
        mem.store(
            STATE_WORD_AT,
            word(STATE_WORD_AT) & 0xFFFF_FFFF | progress << 32,
        );
        mem.flush(0, BYTES as u64, flush);
        mem.store_fence(fence);
    };
    mem.store(0, word(0));
    store_state(
        Progress::Formatting as u64,
        Step::FormatBeginFlush,
        Step::FormatBeginFence,
    );
    for at in (0..BYTES as u64)
        .step_by(8)
        .filter(|&at| at != STATE_WORD_AT)
    {
        mem.store(at, word(at));
    }
    mem.flush(0, BYTES as u64, Step::FormatBodyFlush);
    mem.store_fence(Step::FormatBodyFence);
    store_state(
        word(STATE_WORD_AT) >> 32,
        Step::FormatReadyFlush,
        Step::FormatReadyFence,
    );
}
