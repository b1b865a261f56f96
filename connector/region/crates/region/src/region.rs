//! A region as a process holds it: the protocol on a mapping, and the two threads that keep it in order.
//!
//! The janitor shows that the process lives, sweeps processes that died, and notices a re-format. The populator faults
//! the mapping in, so that no request does. Both hold the region weakly: the last user that lets go ends it.

use crate::attach::{AttachOptions, load_superblock};
use crate::buffers::Buffers;
use crate::core::{Core, Own, Place, Scratch};
use crate::digest::{Digest, Digester};
use crate::domain;
use crate::layout::PROCESS_BYTES;
use crate::lock_file;
use crate::mapped::Mapped;
use crate::memory::Memory;
use crate::os::file::Medium;
use crate::os::lock::{Hold, Locks};
use crate::os::{host, sigbus};
use crate::probe::Accept;
use crate::read::Units;
use crate::stats::{Event, Miss, Refusal};
use crate::superblock::{EPOCH_AT, Superblock};
use crate::write::Shape;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often the janitor looks: a dead process's space is usable again within about this time.
const JANITOR_PERIOD: Duration = Duration::from_millis(100);
/// Every so many looks it counts the chunks and frees orphans that nobody pointed it to.
const ORPHANS_EVERY: u64 = 100;
/// Bytes faulted in at a time.
const POPULATE_BYTES: u64 = 16 << 20;
/// How long the end of a region waits for calls under way.
const END_WAIT: Duration = Duration::from_secs(10);
/// Unknown namespace number.
const UNNUMBERED: u16 = u16::MAX;

thread_local! {
    pub(crate) static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// An attached region. Dropping it leaves the process slot in good order and unmaps.
pub struct Live {
    core: Core<Mapped>,
    locks: Option<Locks>,
    medium: Medium,
    turn: Option<u64>,
    populated: AtomicU64,
    is_populating: AtomicBool,
    is_ending: AtomicBool,
    lent: AtomicUsize,
    sweeping: Mutex<()>,
    pub(crate) copy_threads: u8,
}

impl Live {
    /// Starts the threads of a region that was just attached.
    pub(crate) fn start(
        core: Core<Mapped>,
        locks: Option<Locks>,
        medium: Medium,
        turn: Option<u64>,
        options: &AttachOptions,
    ) -> Arc<Self> {
        let populate = options.populate && medium.is_allocated();
        let live = Arc::new(Self {
            core,
            locks,
            medium,
            turn,
            populated: AtomicU64::new(0),
            is_populating: AtomicBool::new(populate),
            is_ending: AtomicBool::new(false),
            lent: AtomicUsize::new(0),
            sweeping: Mutex::default(),
            copy_threads: options.copy_threads,
        });
        let weak = Arc::downgrade(&live);
        spawn("hymcache-janitor", move || janitor(&weak));
        if populate {
            let weak = Arc::downgrade(&live);
            spawn("hymcache-populate", move || populator(&weak));
        }
        live
    }

    /// Lets go and waits until calls and threads that use the region have let go too, so that the process slot is given
    /// back when this returns. A call that hangs keeps the region alive instead of ending under it; views keep the
    /// mapping alone.
    pub fn end(self: Arc<Self>) {
        // Before the count is looked at: a janitor that begins a look after it must see this.
        self.is_ending.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let deadline = Instant::now() + END_WAIT;
        // In a forked child the threads are gone, and with them whoever would let go.
        let is_shared = || {
            let lent = self.lent.load(Ordering::Relaxed);
            Arc::strong_count(&self) > 1 + lent && self.core.mem.mapping().is_mapped()
        };
        while is_shared() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
        if !is_shared() {
            self.leave();
        }
    }

    /// Gives the process slot back, unless this is a forked child, or the region is not the one that was attached: a
    /// format may have given the slot to another process. Once is as good as twice.
    fn leave(&self) {
        if let Some(own) = &self.core.own
            && self.is_current()
        {
            self.core.tally(own);
            self.core.leave(own);
        }
    }

    /// Counts views that are out: their users may look at the mapping when the region has ended.
    pub(crate) fn lend(&self) {
        self.lent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a view that is back.
    pub(crate) fn take_back(&self) {
        self.lent.fetch_sub(1, Ordering::Relaxed);
    }

    /// The protocol state: identity, layout, counters.
    pub const fn core(&self) -> &Core<Mapped> {
        &self.core
    }

    /// How messages call the medium.
    pub fn name(&self) -> &str {
        &self.medium.name
    }

    /// Bytes faulted in so far, and whether that still goes on.
    pub fn populated(&self) -> (u64, bool) {
        let bytes = self.populated.load(Ordering::Relaxed);
        (bytes, self.is_populating.load(Ordering::Relaxed))
    }

    /// False once nothing is read or published any more.
    pub fn is_intact(&self) -> bool {
        self.core.mem.is_intact()
    }

    /// What every request begins with: this thread can meet a hole, and the region is still the one that was attached.
    /// A forked child has no mapping, so that comes first.
    #[inline]
    pub(crate) fn ready(&self) -> bool {
        if !self.is_intact() {
            return false;
        }
        sigbus::unblock();
        let epoch = self.core.mem.load(EPOCH_AT);
        if epoch != self.core.identity.epoch {
            self.core.mem.mapping().lose();
        }
        self.is_intact()
    }

    /// Length of the leading run of keys that are found; `visit` is called for each.
    pub fn lookup(
        &self,
        count: usize,
        key: impl FnMut(usize) -> Option<Digest>,
        visit: impl FnMut(Place),
    ) -> usize {
        if self.ready() {
            return self.core.lookup(count, key, visit);
        }
        self.core.stats.add(Event::MissLost, 1);
        0
    }

    /// Looks keys up one by one; `visit` is told whether each is there.
    pub fn contains(&self, digests: &[Digest], mut visit: impl FnMut(bool)) {
        let ready = self.ready();
        for keys in digests.chunks(crate::probe::BATCH) {
            let mut found = [None; crate::probe::BATCH];
            if ready {
                self.core.locate_batch(keys, &mut found[..keys.len()]);
            }
            found[..keys.len()]
                .iter()
                .for_each(|place| visit(place.is_some()));
        }
    }

    /// Copies units of an object out. See [`Core::get`].
    ///
    /// # Errors
    /// The reason of the miss, already counted.
    pub fn get(&self, key: &Digest, units: Units, buffers: Buffers) -> Result<u64, Miss> {
        if !self.ready() {
            self.core.stats.add(Event::MissLost, 1);
            return Err(Miss::Lost);
        }
        if self.shares(buffers.len())
            && let Some(place) = self.core.locate(key, Accept::Readable)
            && let Some(bytes) = self.read_halves(place, Some(key), units, buffers)
        {
            self.core.used(place);
            return Ok(bytes);
        }
        SCRATCH.with_borrow_mut(|scratch| self.core.get(key, units, buffers, scratch))
    }

    /// Stores an object. See [`Core::put`].
    ///
    /// # Errors
    /// Why nothing was stored, already counted.
    pub fn put(&self, key: &Digest, shape: Shape, buffers: Buffers) -> Result<(), Refusal> {
        if !self.ready() {
            self.core.stats.add(Event::PutLost, 1);
            return Err(Refusal::Lost);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let copy = |place, scratch: &mut _| self.copy_in_halves(place, 0, buffers, scratch);
            self.core.put_by(key, shape, buffers.len(), scratch, copy)
        })
    }

    /// Retires own objects. Returns how many.
    pub fn evict(&self, digests: &[Digest]) -> usize {
        if !self.ready() {
            return 0;
        }
        let own = |key: &&Digest| self.core.evict_key(key);
        digests.iter().filter(own).count()
    }

    /// Reserves room for an object. See [`Core::reserve`].
    ///
    /// # Errors
    /// Why not.
    pub fn reserve(&self, key: &Digest, shape: Shape) -> Result<Place, Refusal> {
        if !self.ready() {
            return Err(Refusal::Lost);
        }
        SCRATCH.with_borrow_mut(|scratch| self.core.reserve(key, shape, scratch))
    }

    /// Copies one section of a reserved object in. See [`Core::write`].
    ///
    /// # Errors
    /// Why not.
    pub fn write(&self, place: Place, section: u32, buffers: Buffers) -> Result<(), Refusal> {
        if !self.ready() {
            return Err(Refusal::Lost);
        }
        let result = SCRATCH.with_borrow_mut(|scratch| {
            let copy = || self.copy_in_halves(place, section, buffers, scratch);
            self.core.write_by(place, section, copy)
        });
        if result.is_ok() {
            self.core.stats.add(Event::PutBytes, buffers.len());
        }
        result
    }

    /// Copies units of a found object out. See [`Core::read`].
    ///
    /// # Errors
    /// The reason of the miss, already counted.
    pub fn read(&self, place: Place, units: Units, buffers: Buffers) -> Result<u64, Miss> {
        let result = if self.ready() && self.core.is_place(place) {
            let one = || {
                SCRATCH
                    .with_borrow_mut(|scratch| self.core.read(place, None, units, buffers, scratch))
            };
            self.read_halves(place, None, units, buffers)
                .map_or_else(one, Ok)
        } else {
            Err(Miss::Lost)
        };
        if let Err(miss) = result {
            self.core.stats.add(miss.into(), 1);
        }
        result
    }

    /// Publishes a reserved object. See [`Core::commit`].
    ///
    /// # Errors
    /// Why not; the reservation is then given up.
    pub fn commit(&self, place: Place) -> Result<(), Refusal> {
        if !self.ready() {
            return Err(Refusal::Lost);
        }
        let result = SCRATCH.with_borrow_mut(|scratch| self.core.commit(place, scratch));
        match result {
            Ok(()) => self.core.stats.add(Event::Puts, 1),
            Err(refusal) => {
                self.core.stats.add(refusal.into(), 1);
                self.core.abort(place);
            }
        }
        result
    }

    /// Gives a reservation up.
    pub fn abort(&self, place: Place) {
        if self.ready() {
            self.core.abort(place);
        }
    }

    /// Stops lookups from finding an object until its header is claimed anew.
    pub fn quarantine(&self, place: Place) {
        if self.ready() && self.core.is_place(place) {
            self.core.quarantine(place);
        }
    }

    /// Reads and verifies the object at a place. See [`Core::verify`].
    ///
    /// # Errors
    /// The reason why not.
    pub fn verify(&self, place: Place) -> Result<u64, Miss> {
        if !self.ready() {
            return Err(Miss::Lost);
        }
        SCRATCH.with_borrow_mut(|scratch| self.core.verify(place, scratch))
    }

    /// Runs a report, or gives `none` where the mapping does not stand.
    pub fn inspect<T>(&self, none: T, report: impl FnOnce(&Core<Mapped>) -> T) -> T {
        if self.ready() {
            report(&self.core)
        } else {
            none
        }
    }

    /// Sweeps every process of the own domain that is dead. Returns how many were.
    pub fn sweep(&self) -> usize {
        match (&self.core.own, &self.locks) {
            (Some(own), Some(locks)) if self.ready() => self.sweep_dead(own, locks),
            _ => 0,
        }
    }

    /// Processes of this host that hold a slot of a domain, by their locks, this one included. `None` when the domain is
    /// another host's, whose locks are not seen here, or locks do not work.
    pub fn users(&self, domain: u32) -> Option<usize> {
        let layout = &self.core.layout;
        let locks = self.locks.as_ref()?;
        if !self.ready() || domain >= layout.geometry.domains {
            return None;
        }
        let owner = domain::load_owner(&self.core.mem, layout, domain);
        if owner.is_some_and(|owner| Some(owner.boot) != host::boot_id().ok()) {
            return None;
        }
        let mine = self.core.own.as_ref().filter(|own| own.domain == domain);
        let held = |at, len| locks.is_held_elsewhere(at, len).ok();
        let slots = layout.geometry.processes;
        let all = u64::from(slots) * PROCESS_BYTES;
        let mut users = usize::from(mine.is_some());
        if held(layout.process(domain, 0), all)? {
            for process in 0..slots {
                users += usize::from(held(layout.process(domain, process), 1)?);
            }
        }
        Some(users)
    }

    fn sweep_dead(&self, own: &Own, locks: &Locks) -> usize {
        // Threads share the locks: another one would get a byte that this one holds, and give it back under its feet.
        let _alone = (self.sweeping.lock()).unwrap_or_else(PoisonError::into_inner);
        let others =
            (0..self.core.layout.geometry.processes).filter(|&process| process != own.process);
        let mut dead = 0;
        for process in others.filter(|&process| self.core.is_process_live(own, process)) {
            let at = self.core.layout.process(own.domain, process);
            // The lock byte is the proof. While we hold it nobody else sweeps the slot or takes it.
            if locks.try_lock(at, 1, Hold::Alone).unwrap_or(false) {
                self.core.sweep_process(own, process);
                locks.unlock(at, 1);
                dead += 1;
            }
        }
        dead
    }

    /// As [`Live::ready`], by a fresh look at the whole superblock.
    fn is_current(&self) -> bool {
        if !self.ready() {
            return false;
        }
        let bytes = load_superblock(&self.core.mem);
        let current =
            Superblock::decode("", &bytes, self.medium.bytes).is_ok_and(|(superblock, _)| {
                superblock.identity.epoch == self.core.identity.epoch
                    && superblock.identity.uuid == self.core.identity.uuid
            });
        if !current || !self.is_owner() {
            self.core.mem.mapping().lose();
        }
        self.is_intact()
    }

    /// False once the own domain was given to somebody else, who took this process for dead: another host, which a
    /// damaged owner line did not keep out, or processes that lock another file. A line that damage made unreadable is
    /// no sign of that.
    fn is_owner(&self) -> bool {
        let Some(own) = &self.core.own else {
            return true;
        };
        let (mem, layout) = (&self.core.mem, &self.core.layout);
        let owner = domain::load_owner(mem, layout, own.domain);
        let lock_file = lock_file::load(mem, layout, own.domain);
        let mine = self.locks.as_ref().and_then(Locks::lock_file);
        owner.is_none_or(|owner| Some(owner.turn) == self.turn)
            && (mine.is_none() || lock_file.is_none() || lock_file == mine)
    }

    /// One look of the janitor.
    fn look(&self, round: u64) {
        if !self.is_current() {
            return;
        }
        if let (Some(own), Some(locks)) = (&self.core.own, &self.locks) {
            self.core.show(own);
            self.core.tally(own);
            self.core.send_touches(own);
            self.core.drain_touches(own);
            self.sweep_dead(own, locks);
            if round % ORPHANS_EVERY == ORPHANS_EVERY - 1 {
                self.core.sweep_orphans(own);
            }
        }
    }

    /// Ranges to fault in: (place, bytes, with stores), metadata before payload, the own domain before the others.
    fn ranges(&self) -> Vec<(u64, u64, bool)> {
        let layout = &self.core.layout;
        let own = self.core.own.as_ref();
        let is_own = |domain| own.is_some_and(|own| own.domain == domain);
        let mut ranges: Vec<_> = (0..layout.geometry.domains)
            .map(|domain| (layout.domain(domain), layout.domain_bytes, is_own(domain)))
            .collect();
        ranges.sort_by_key(|&(_, _, write)| !write);
        let mut extents: Vec<_> = own.iter().flat_map(|own| &own.extents).collect();
        extents.sort_by_key(|extent| extent.chunk);
        let (mut others, mut next) = (Vec::new(), layout.pool_at);
        for extent in extents {
            let start = layout.chunk(extent.chunk);
            let bytes = u64::from(extent.count) * layout.geometry.chunk_bytes;
            ranges.push((start, bytes, true));
            others.push((next, start.saturating_sub(next), false));
            next = start + bytes;
        }
        others.push((
            next,
            layout.chunk(layout.chunks).saturating_sub(next),
            false,
        ));
        ranges.extend(others);
        ranges
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.leave();
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    // A process that cannot start a thread works without: others sweep for it, requests fault pages in themselves.
    let _ = std::thread::Builder::new().name(name.into()).spawn(body);
}

/// The region, unless it is about to end.
fn in_use(region: &Weak<Live>) -> Option<Arc<Live>> {
    region.upgrade().filter(|live| {
        fence(Ordering::SeqCst); // counted first, see `Live::end`
        !live.is_ending.load(Ordering::SeqCst)
    })
}

fn janitor(region: &Weak<Live>) {
    for round in 0_u64.. {
        std::thread::sleep(JANITOR_PERIOD);
        let Some(live) = in_use(region) else { return };
        live.look(round);
    }
}

fn populator(region: &Weak<Live>) {
    let Some(ranges) = region.upgrade().map(|live| live.ranges()) else {
        return;
    };
    for (start, len, write) in ranges {
        for offset in (0..len).step_by(POPULATE_BYTES as usize) {
            let Some(live) = in_use(region) else { return };
            let part = POPULATE_BYTES.min(len - offset);
            if !live.is_intact()
                || !live
                    .core
                    .mem
                    .mapping()
                    .populate(start + offset, part, write)
            {
                break;
            }
            live.populated.fetch_add(part, Ordering::Relaxed);
        }
    }
    if let Some(live) = region.upgrade() {
        live.is_populating.store(false, Ordering::Relaxed);
    }
}

/// Keys of one model configuration in one region.
pub struct Namespace {
    digester: Digester,
    fingerprint: [u8; 32],
    number: AtomicU16,
}

impl Namespace {
    /// The namespace of `fingerprint` in the region `live`.
    pub fn new(live: &Live, fingerprint: [u8; 32]) -> Self {
        Self {
            digester: Digester::new(&live.core.identity.uuid, &fingerprint),
            fingerprint,
            number: AtomicU16::new(UNNUMBERED),
        }
    }

    /// Digest of an engine key.
    #[inline]
    pub fn digest(&self, key: &[u8]) -> Digest {
        self.digester.digest(key)
    }

    /// Its number in the own domain, registered at the first put.
    pub fn number(&self, live: &Live) -> u16 {
        match self.number.load(Ordering::Relaxed) {
            UNNUMBERED if live.ready() => {
                let number = live.core.namespace_number(&self.fingerprint);
                self.number.store(number, Ordering::Relaxed);
                number
            }
            UNNUMBERED => 0,
            number => number,
        }
    }
}
