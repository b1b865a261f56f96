//! Joining a region: reading what it is, owning a domain, taking a process slot. Never writes a superblock.

use crate::core::{Core, Own};
use crate::domain::{self, OwnerLine};
use crate::error::{ErrorKind, RegionError, Result};
use crate::layout::{Counter, DOMAINS_MAX, LINE, Layout, PROCESS_BYTES, Ring, SUPERBLOCK_BYTES};
use crate::lock_file;
use crate::mapped::Mapped;
use crate::memory::{Memory, Step};
use crate::os::file::{Medium, Target};
use crate::os::lock::{Hold, Locks};
use crate::os::map::Mapping;
use crate::os::{clock, host, sigbus};
use crate::region::Live;
use crate::ring::first_ticket;
use crate::superblock::{BYTES, Superblock, uuid_text};
use crate::words::{FreeChunks, HeaderWord, State};
use hymcache_copy::Choice;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an attach waits for another attach or format of the same host.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// What an attach is asked for.
#[derive(Clone, Debug, Default)]
pub struct AttachOptions {
    /// The domain to store into.
    pub domain: u32,
    /// Store nothing, take no process slot.
    pub read_only: bool,
    /// The region that is expected.
    pub uuid: Option<[u8; 16]>,
    /// The epoch that is expected.
    pub epoch: Option<u64>,
    /// Name of this host; `None` = its boot.
    pub host: Option<String>,
    /// Where locks are taken when the medium is a device.
    pub lock_file: Option<PathBuf>,
    /// Fault the mapping in, in the background, where the medium has its pages already.
    pub populate: bool,
    /// Threads that copy a large object: 2, or one.
    pub copy_threads: u8,
}

/// Attaches to `target`.
///
/// # Errors
/// Whatever is there instead of the expected region, a domain of another host, no free process slot.
pub fn attach(target: &Target, options: &AttachOptions) -> Result<Arc<Live>> {
    attach_to(Medium::open(target, !options.read_only)?, options)
}

pub(crate) fn attach_to(medium: Medium, options: &AttachOptions) -> Result<Arc<Live>> {
    sigbus::unblock();
    if medium.bytes < SUPERBLOCK_BYTES {
        let kind = if medium.bytes == 0 {
            ErrorKind::Unformatted
        } else {
            ErrorKind::Foreign
        };
        let message = format!(
            "{}: expected a region, found {} bytes; format it, or check the path",
            medium.name, medium.bytes
        );
        return Err(RegionError::new(kind, message));
    }
    let mapped = Mapped::new(Mapping::new(&medium)?, Choice::guess());
    let locks = if options.read_only {
        None
    } else {
        Some(Locks::open(&medium, options.lock_file.as_deref())?)
    };
    if let Some(locks) = &locks {
        wait_for(locks, 0, BYTES as u64, Hold::Shared, &medium.name)?;
    }
    let result = superblock(&mapped, &medium, options).and_then(|(superblock, layout)| {
        let own = match &locks {
            Some(locks) => Some(own_domain(&mapped, &layout, locks, options, &medium.name)?),
            None => None,
        };
        Ok((superblock, layout, own))
    });
    if let Some(locks) = &locks {
        locks.unlock(0, BYTES as u64);
    }
    let (superblock, layout, own) = result?;
    let (own, turn) = own.unzip();
    let core = Core::new(mapped, layout, superblock.identity, own, clock::now_ms);
    if let (Some(own), Some(locks)) = (&core.own, &locks) {
        enter(&core, own, locks)?;
    }
    // A reader takes no lock, but may ask who holds one.
    let locks = locks.or_else(|| Locks::open(&medium, options.lock_file.as_deref()).ok());
    Ok(Live::start(core, locks, medium, turn, options))
}

/// Takes the process slot that `own` names, whose lock is held, and lets others through the turnstile.
fn enter(core: &Core<Mapped>, own: &Own, locks: &Locks) -> Result<()> {
    let layout = &core.layout;
    let slots = u64::from(layout.geometry.processes) * PROCESS_BYTES;
    let is_alone = !locks.is_held_elsewhere(layout.process(own.domain, 0), slots)?;
    if is_alone {
        core.enter_alone(own, std::process::id());
    }
    locks.unlock(layout.domain(own.domain), LINE);
    if !is_alone {
        core.enter(own, std::process::id());
    }
    Ok(())
}

/// Reads the superblock fresh and compares it with what is expected.
fn superblock(
    mapped: &Mapped,
    medium: &Medium,
    options: &AttachOptions,
) -> Result<(Superblock, Layout)> {
    let decode = || Superblock::decode(&medium.name, &load_superblock(mapped), medium.bytes);
    // A format that began between two loads looks torn once; what is torn stays so.
    let is_torn =
        |result: &Result<_>| matches!(result, Err(error) if error.kind == ErrorKind::Torn);
    let mut found = decode();
    for _ in 0..3 {
        if !is_torn(&found) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        found = decode();
    }
    let (superblock, layout) = found?;
    let fail = |kind, what: String| Err(RegionError::new(kind, format!("{}: {what}", medium.name)));
    let features = superblock.read_only_features;
    if features != 0 && !options.read_only {
        return fail(
            ErrorKind::Newer,
            format!(
                "expected a region that this release can store into, found unknown features {features:#x}; attach it \
                 read-only, or use the release that formatted it"
            ),
        );
    }
    let identity = &superblock.identity;
    if let Some(uuid) = options.uuid.filter(|uuid| *uuid != identity.uuid) {
        let (expected, found) = (uuid_text(&uuid), uuid_text(&identity.uuid));
        return fail(
            ErrorKind::WrongUuid,
            format!(
                "expected region {expected}, found {found}; check which region is attached here"
            ),
        );
    }
    if let Some(epoch) = options.epoch.filter(|&epoch| epoch != identity.epoch) {
        return fail(
            ErrorKind::WrongEpoch,
            format!(
                "expected epoch {epoch}, found {}; ask for the claim's current epoch",
                identity.epoch
            ),
        );
    }
    if options.domain >= layout.geometry.domains && !options.read_only {
        return fail(
            ErrorKind::Invalid,
            format!(
                "domain: expected 0 to {}, found {}",
                layout.geometry.domains - 1,
                options.domain
            ),
        );
    }
    let (granule, page) = (layout.geometry.granule, medium.page_bytes);
    if granule % page != 0 && !options.read_only {
        return fail(
            ErrorKind::Invalid,
            format!(
                "domains begin at multiples of {granule} bytes, which a device of alignment {page} cannot protect from \
                 one another; attach it read-only, align the device to less, or format it anew"
            ),
        );
    }
    if identity.software && layout.geometry.domains > 1 && !hymcache_copy::line::reaches_memory() {
        return fail(
            ErrorKind::Invalid,
            "this machine cannot flush cache lines, so it cannot share a software-coherent region"
                .into(),
        );
    }
    Ok((superblock, layout))
}

/// The superblock's bytes, from memory rather than from this host's caches.
pub fn load_superblock<M: Memory>(mapped: &M) -> [u8; BYTES] {
    mapped.invalidate(0, BYTES as u64, Step::SuperblockInvalidate);
    mapped.full_fence(Step::SuperblockFence);
    let mut bytes = [0; BYTES];
    for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&mapped.load(8 * i as u64).to_le_bytes());
    }
    bytes
}

fn wait_for(locks: &Locks, at: u64, len: u64, hold: Hold, name: &str) -> Result<()> {
    let start = Instant::now();
    while !locks.try_lock(at, len, hold)? {
        if start.elapsed() > LOCK_WAIT {
            let message = format!(
                "{name}: another process has been formatting or attaching for {} s; end it and attach again",
                LOCK_WAIT.as_secs()
            );
            return Err(RegionError::new(ErrorKind::Busy, message));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Makes the domain this host's, maps it for writing, and takes a process slot's lock. Also that of the turnstile, so that
/// nobody else takes a slot until [`enter`]. Returns the domain's turn too.
fn own_domain(
    mapped: &Mapped,
    layout: &Layout,
    locks: &Locks,
    options: &AttachOptions,
    name: &str,
) -> Result<(Own, u64)> {
    let domain = options.domain;
    let extents = domain::load_extents(mapped, layout, domain)?;
    mapped
        .mapping()
        .allow_stores(layout.domain(domain), layout.domain_bytes)?;
    for extent in &extents {
        let bytes = u64::from(extent.count) * layout.geometry.chunk_bytes;
        mapped
            .mapping()
            .allow_stores(layout.chunk(extent.chunk), bytes)?;
    }
    let turnstile = layout.domain(domain);
    wait_for(locks, turnstile, LINE, Hold::Alone, name)?;
    let turn = claim_domain(mapped, layout, locks, options, name)?;
    for process in 0..layout.geometry.processes {
        if locks.try_lock(layout.process(domain, process), 1, Hold::Alone)? {
            let own = Own {
                domain,
                process,
                extents,
            };
            return Ok((own, turn));
        }
    }
    Err(RegionError::new(
        ErrorKind::Crowded,
        format!(
            "{name}: all {} process slots of domain {domain} are taken by live processes; end some",
            layout.geometry.processes
        ),
    ))
}

/// Makes the domain this host's. Returns its turn.
fn claim_domain(
    mapped: &Mapped,
    layout: &Layout,
    locks: &Locks,
    options: &AttachOptions,
    name: &str,
) -> Result<u64> {
    let domain = options.domain;
    let boot = host::boot_id()?;
    let me = options.host.as_deref().map_or(boot, host::host_id);
    let old = domain::recall_owner(mapped, layout, domain);
    if let Some(old) = old
        && old.host != me
    {
        return Err(RegionError::new(
            ErrorKind::Owned,
            format!(
                "{name}: domain {domain} belongs to another host since {} s after 1970; attach the domain that was given \
                 to this host, or format the region anew",
                old.since_ms / 1000
            ),
        ));
    }
    // The processes of an earlier boot are dead, whatever file they locked.
    let is_same_boot = old.is_none_or(|old| old.boot == boot);
    lock_file::share(mapped, layout, locks, domain, is_same_boot, name)?;
    if let Some(old) = old.filter(|_| is_same_boot) {
        domain::mend_owner(mapped, layout, domain, &old);
        return Ok(old.turn);
    }
    // Only the dead may lose what they hold: a damaged owner line is no proof of anybody's death.
    let slots = u64::from(layout.geometry.processes) * PROCESS_BYTES;
    if locks.is_held_elsewhere(layout.process(domain, 0), slots)? {
        return Err(RegionError::new(
            ErrorKind::Busy,
            format!(
                "{name}: domain {domain} has a damaged owner line and cannot be begun anew while live processes of this \
                 host use it; end them and attach again"
            ),
        ));
    }
    let turn = empty_domain(mapped, layout, domain, old.map_or(0, |old| old.turn));
    let owner = OwnerLine {
        turn,
        host: me,
        boot,
        since_ms: clock::now_ms(),
    };
    domain::store_owner(mapped, layout, domain, &owner);
    Ok(turn)
}

/// Gives a domain to a new owner, or to the old one after a reboot: nothing is kept. Stale clean lines are dropped before
/// the first store, as one that is written back would bring the former owner's bytes with it. Returns the new turn, above
/// `old` and above those that the rings know of.
pub fn empty_domain<M: Memory>(mapped: &M, layout: &Layout, domain: u32, old: u64) -> u64 {
    let (at, bytes) = (layout.domain(domain), layout.domain_bytes);
    mapped.invalidate(at, bytes, Step::TakeoverInvalidate);
    mapped.full_fence(Step::TakeoverFence);
    let turn = domain::turn_told(mapped, layout, domain)
        .max(old)
        .wrapping_add(1);
    for header in 0..layout.headers() {
        let at = layout.header(domain, header);
        let word = HeaderWord(mapped.load(at));
        mapped.store(at, word.to(State::Free).0);
        mapped.store(layout.recency(domain, header), 0);
    }
    let clear = |at: u64, len: u64| {
        for offset in (0..len).step_by(8) {
            mapped.store(at + offset, 0);
        }
    };
    let g = &layout.geometry;
    clear(
        layout.process(domain, 0),
        u64::from(g.processes) * PROCESS_BYTES,
    );
    clear(
        layout.quarantine(domain, 0),
        u64::from(g.quarantine_lines) * LINE,
    );
    clear(layout.tags(domain, 0), u64::from(g.sets) * LINE);
    clear(layout.chunk_word(domain, 0), u64::from(g.domain_chunks) * 8);
    for ring in [Ring::Touch, Ring::Prefetch, Ring::Publish, Ring::Evicted] {
        clear(
            layout.ring_line(domain, ring, 0),
            layout.ring_entries(ring) * LINE,
        );
        mapped.store(layout.ring_ticket(domain, ring), first_ticket(turn));
    }
    clear(layout.touch_cursor(domain, 0), u64::from(DOMAINS_MAX) * 8);
    mapped.store(layout.counter(domain, Counter::Quarantined), 0);
    mapped.store(
        layout.counter(domain, Counter::FreeChunks),
        FreeChunks::new(g.domain_chunks.into()).0,
    );
    mapped.flush(at, bytes, Step::TakeoverFlush);
    mapped.store_fence(Step::TakeoverDone);
    turn
}
