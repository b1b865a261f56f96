//! The region under test: a memory file, its bytes as a fault would change them, and objects that know their own bytes.

use crate::change::Random;
use hymcache_region::attach::{AttachOptions, attach};
use hymcache_region::buffers::{Buffers, Piece};
use hymcache_region::core::{Core, Identity, Own, Place, Scratch};
use hymcache_region::digest::Digest;
use hymcache_region::domain::load_extents;
use hymcache_region::error::RegionError;
use hymcache_region::format::{FormatOptions, format};
use hymcache_region::hint::Terms;
use hymcache_region::layout::{Counter, Layout};
use hymcache_region::lent::Lent;
use hymcache_region::mapped::Mapped;
use hymcache_region::memory::Memory;
use hymcache_region::os::clock::now_ms;
use hymcache_region::os::file::{Medium, Target};
use hymcache_region::os::map::Mapping;
use hymcache_region::read::Units;
use hymcache_region::region::{Live, Namespace};
use hymcache_region::ring::Cursor;
use hymcache_region::stats::Event;
use hymcache_region::write::Shape;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const REGION_BYTES: u64 = 6 << 20;
pub(crate) const CHUNK_BYTES: u64 = 64 << 10;
pub(crate) const KEYS: usize = 32;
pub(crate) const UUID: [u8; 16] = [0x5A; 16];
const FINGERPRINT: [u8; 32] = [7; 32];

/// (units, bytes of a unit) of a key: part of a chunk, one chunk, several.
pub(crate) const fn shape(key: usize) -> (u16, u32) {
    let (units, unit_bytes) = [(1, 5000), (3, 900), (4, 16_384), (5, 33_000)][key % 4];
    (units, unit_bytes + key as u32)
}

/// The bytes of a key: every eight of them name it and their place.
pub(crate) fn content(key: usize) -> Vec<u8> {
    let (units, unit_bytes) = shape(key);
    let len = units as usize * unit_bytes as usize;
    let words = (0..len.div_ceil(8) as u64).map(|i| (key as u64 + 1) << 40 | i);
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}

pub(crate) fn piece(bytes: &mut [u8]) -> [Piece; 1] {
    // SAFETY: callers keep the vector until the call that gets the piece is over.
    [unsafe { Piece::new(bytes.as_mut_ptr(), bytes.len()) }]
}

/// The region's bytes, writable by anyone at any time.
pub(crate) struct Raw {
    fd: OwnedFd,
    base: *mut u8,
}

// SAFETY: all access is by atomics.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    /// A memory file with a formatted region of two domains.
    pub(crate) fn formatted() -> (Self, Layout) {
        // SAFETY: a name without zeros inside; the result is checked.
        let fd = unsafe { libc::memfd_create(c"damaged".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "no memory file");
        // SAFETY: the descriptor was just made, and is nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: no pointers.
        let code = unsafe { libc::ftruncate(fd.as_raw_fd(), REGION_BYTES.cast_signed()) };
        assert_eq!(code, 0);
        let options = FormatOptions {
            chunk_bytes: CHUNK_BYTES,
            domains: 2,
            uuid: Some(UUID),
            ..FormatOptions::default()
        };
        let (_, layout) = format(&Target::Fd(fd.as_raw_fd()), &options).expect("a new region");
        // SAFETY: a new mapping where the kernel likes.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                REGION_BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let base = base.cast();
        (Self { fd, base }, layout)
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < REGION_BYTES);
        #[expect(
            clippy::cast_ptr_alignment,
            reason = "a page-aligned base and an aligned place"
        )]
        let word = self.base.wrapping_add(at as usize).cast::<AtomicU64>();
        // SAFETY: inside the mapping, which lives as long as self.
        unsafe { &*word }
    }

    pub(crate) fn load(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    pub(crate) fn store(&self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    /// Flips bits of one word.
    pub(crate) fn flip(&self, at: u64, bits: u64) {
        self.word(at).fetch_xor(bits, Ordering::Relaxed);
    }

    pub(crate) fn image(&self) -> Vec<u64> {
        (0..REGION_BYTES / 8).map(|i| self.load(8 * i)).collect()
    }

    pub(crate) fn restore(&self, image: &[u64]) {
        for (i, word) in image.iter().enumerate() {
            self.store(8 * i as u64, *word);
        }
    }

    /// Formats anew, with chunks of another size.
    pub(crate) fn format_again(&self, chunk_bytes: u64) {
        let options = FormatOptions {
            chunk_bytes,
            domains: 2,
            uuid: Some(UUID),
            replaces: Some(1),
            ..FormatOptions::default()
        };
        format(&Target::Fd(self.fd.as_raw_fd()), &options).expect("a new epoch");
    }

    /// One more mapping, all of it for stores.
    pub(crate) fn mapped(&self) -> Mapped {
        let medium = Medium::open(&Target::Fd(self.fd.as_raw_fd()), true).expect("the medium");
        let mapping = Mapping::new(&medium).expect("a mapping");
        mapping.allow_stores(0, REGION_BYTES).expect("stores");
        Mapped::new(mapping, hymcache_copy::Choice::guess())
    }

    /// A process of epoch 1 without lock or look at the superblock.
    pub(crate) fn core<M: Memory>(mem: M, layout: &Layout, domain: u32, process: u32) -> Core<M> {
        let identity = Identity {
            uuid: UUID,
            epoch: 1,
            software: true,
            formatted_seconds: 0,
        };
        let extents = load_extents(&mem, layout, domain).expect("extents");
        let own = Own {
            domain,
            process,
            extents,
        };
        Core::new(mem, layout.clone(), identity, Some(own), now_ms)
    }

    /// Such a process with a mapping of its own.
    pub(crate) fn zombie(&self, layout: &Layout, domain: u32) -> Zombie {
        let core = Self::core(self.mapped(), layout, domain, 9);
        core.enter(core.own.as_ref().expect("just given"), 9);
        Zombie(core)
    }

    /// Attaches as the host of `domain`.
    pub(crate) fn attach(&self, domain: u32, read_only: bool) -> Result<Arc<Live>, RegionError> {
        let options = AttachOptions {
            domain,
            read_only,
            host: Some(format!("host-{domain}")),
            ..AttachOptions::default()
        };
        attach(&Target::Fd(self.fd.as_raw_fd()), &options)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: mapped in `formatted`, and nothing borrows it any more.
        unsafe { libc::munmap(self.base.cast(), REGION_BYTES as usize) };
    }
}

/// The protocol without what protects it from living on after its time.
pub(crate) struct Zombie(Core<Mapped>);

impl Zombie {
    /// Stores under the key that `user` would look up.
    pub(crate) fn put(&self, user: &User, key: usize) -> bool {
        let mut bytes = content(key);
        bytes.reverse(); // an object of the former epoch has other bytes
        let list = piece(&mut bytes);
        let (units, unit_bytes) = shape(key);
        let shape = Shape {
            units,
            unit_bytes,
            sections: 1,
            namespace: 0,
        };
        let (digest, mut scratch) = (user.digest(key), Scratch::default());
        let put = self
            .0
            .put(&digest, shape, Buffers::List(&list), &mut scratch);
        put.is_ok()
    }

    pub(crate) fn evict(&self, user: &User, key: usize) {
        self.0.evict_key(&user.digest(key));
    }
}

/// An attached user of the region.
pub(crate) struct User {
    pub(crate) live: Arc<Live>,
    ns: Namespace,
}

impl User {
    pub(crate) fn new(live: Arc<Live>) -> Self {
        let ns = Namespace::new(&live, FINGERPRINT);
        Self { live, ns }
    }

    pub(crate) fn digest(&self, key: usize) -> Digest {
        self.ns.digest(&key.to_le_bytes())
    }

    fn shape(&self, key: usize) -> Shape {
        let (units, unit_bytes) = shape(key);
        Shape {
            units,
            unit_bytes,
            sections: 1,
            namespace: self.ns.number(&self.live),
        }
    }

    pub(crate) fn put(&self, key: usize) -> bool {
        let mut bytes = content(key);
        let list = piece(&mut bytes);
        self.live
            .put(&self.digest(key), self.shape(key), Buffers::List(&list))
            .is_ok()
    }

    /// `None`: a miss. Else whether the bytes are the key's.
    pub(crate) fn get(&self, key: usize) -> Option<bool> {
        let mut bytes = vec![0; content(key).len()];
        let list = piece(&mut bytes);
        let n = self
            .live
            .get(&self.digest(key), Units::ALL, Buffers::List(&list))
            .ok()?;
        Some(n as usize == bytes.len() && bytes == content(key))
    }

    /// As `get`, by a view; `None` as well when the view does not hold.
    pub(crate) fn view(&self, key: usize) -> Option<bool> {
        let view = Lent::new(&self.live, &self.digest(key))?;
        let mut bytes = Vec::new();
        for (address, len) in view.parts() {
            let start = bytes.len();
            bytes.resize(start + len, 0);
            // SAFETY: the view keeps its parts mapped, and the vector has just grown by this much.
            unsafe { address.copy_to_nonoverlapping(bytes[start..].as_mut_ptr(), len) };
        }
        (view.is_still() && view.is_sound()).then(|| bytes == content(key))
    }

    /// All that rings, leases and counters are for.
    pub(crate) fn advise(&self, random: &mut Random, places: &[Place]) {
        let terms = Terms {
            request: random.next(),
            deadline_ms: now_ms() + 1000,
            priority: 1,
            units: 1,
        };
        self.live.prefetch(&[self.digest(0), self.digest(1)], terms);
        self.live.withdraw(terms.request);
        let mut cursors = [Cursor::default(); 2];
        if random.below(3) == 0 {
            cursors[0].next = random.next();
        }
        let limit = random.below(100) as usize;
        let mut count = 0;
        self.live.hints(&mut cursors, limit, |domain, _, hint| {
            assert!(domain < 2);
            count += 1;
            self.live.core().place_of(hint);
        });
        self.live.evicted(&mut cursors, limit, |_, news| {
            assert!(news.place.domain < 2);
            count += 1;
        });
        assert!(count <= 2 * limit);
        for &place in places {
            self.live.lease(place, random.below(3) as u32);
            if random.below(2) == 0 {
                self.live.release_lease(place);
            }
        }
        let core = self.live.core();
        if let Some(own) = &core.own {
            core.tally(own);
            core.send_touches(own);
            core.drain_touches(own);
        }
        for domain in 0..2 {
            self.live.users(domain);
            core.tallied(domain, Counter::Hits);
        }
    }

    /// Leading run of hits over all keys from `first` on, and where they lie.
    pub(crate) fn lookup(&self, first: usize) -> Vec<Place> {
        let mut places = Vec::new();
        let key = |i| Some(self.digest((first + i) % KEYS));
        self.live.lookup(KEYS, key, |place| places.push(place));
        places
    }

    pub(crate) fn contains(&self) -> usize {
        let keys: Vec<Digest> = (0..KEYS).map(|key| self.digest(key)).collect();
        let mut count = 0;
        self.live
            .contains(&keys, |found| count += usize::from(found));
        count
    }

    pub(crate) fn evict(&self, key: usize) {
        self.live.evict(&[self.digest(key)]);
    }

    /// Reads one unit by reference into a buffer that is too small, right or too large.
    pub(crate) fn read(&self, place: Place, section: u32, first: u32, len: usize) {
        let mut bytes = vec![0; len];
        let list = piece(&mut bytes);
        let count = Some(1);
        let units = Units {
            section,
            first,
            count,
        };
        let _ = self.live.read(place, units, Buffers::List(&list));
        assert!(bytes.len() == len);
    }

    /// Reserve, write, commit or abort: the engine's way.
    pub(crate) fn store_in_steps(&self, key: usize, commit: bool) {
        self.store_beside(key, commit, |_| ());
    }

    /// As `store_in_steps`; `meanwhile` runs before the bytes are stored and before the commit.
    pub(crate) fn store_beside(&self, key: usize, commit: bool, mut meanwhile: impl FnMut(Place)) {
        let Ok(place) = self.live.reserve(&self.digest(key), self.shape(key)) else {
            return;
        };
        let mut bytes = content(key);
        let list = piece(&mut bytes);
        meanwhile(place);
        let _ = self.live.write(place, 0, Buffers::List(&list));
        meanwhile(place);
        if commit {
            let _ = self.live.commit(place);
        } else {
            self.live.abort(place);
        }
    }

    /// Everything a report looks at, every object verified. Returns how many were whole.
    pub(crate) fn inspect(&self) -> u64 {
        let core = self.live.core();
        let (mut whole, mut scratch) = (0, Scratch::default());
        self.live.sweep();
        for domain in 0..core.layout.geometry.domains {
            let mut places = Vec::new();
            core.objects(domain, 0, u32::MAX, |seen| places.push(seen.place));
            for place in places {
                whole += u64::from(core.verify(place, &mut scratch).is_ok());
            }
            core.chunk_use(domain);
            core.activity(domain);
            core.namespaces(domain);
            core.processes(domain);
        }
        whole
    }

    /// Accesses outside the region that only the mapping's own guard stopped.
    pub(crate) fn strays(&self) -> u64 {
        let core = self.live.core();
        core.mem.strays() + core.stats.get(Event::OutOfBounds)
    }
}
