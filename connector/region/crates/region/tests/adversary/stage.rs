//! One process after the other on a world that does nothing on its own: no line is evicted or fetched, nothing that was
//! begun is carried out before its fence. What has to be seen is then seen by the protocol's own doing, or never.

use crate::actor::{Actor, Adversary, Mutation};
use crate::scenario::{CHUNKS, content, digest, format, is_content, layout, now_ms, piece, shape};
use crate::world::World;
use hymcache_region::buffers::Buffers;
use hymcache_region::core::{Core, Extent, Identity, Own, Place, Scratch};
use hymcache_region::digest::Digest;
use hymcache_region::layout::Layout;
use hymcache_region::memory::Memory as _;
use hymcache_region::probe::Accept;
use hymcache_region::read::Units;
use hymcache_region::stats::Miss;
use std::cell::RefCell;
use std::rc::Rc;

/// What went wrong in a trial; empty when nothing did.
pub(crate) type Wrong = Vec<String>;

/// Wrong, unless `is_right`.
pub(crate) fn wrong_unless(is_right: bool, what: impl Into<String>) -> Wrong {
    if is_right {
        Vec::new()
    } else {
        vec![what.into()]
    }
}

/// A formatted world of three hosts.
pub(crate) struct Stage {
    pub(crate) world: Rc<RefCell<World>>,
    pub(crate) layout: Layout,
    pub(crate) mutation: Mutation,
}

impl Stage {
    pub(crate) fn new(mutation: &Mutation, seed: u64) -> Self {
        let stage = Self::unformatted(mutation, seed);
        format(&stage.world, &stage.layout);
        stage
    }

    pub(crate) fn unformatted(mutation: &Mutation, seed: u64) -> Self {
        let layout = layout();
        let bytes = layout.chunk(layout.chunks - 1) + layout.geometry.chunk_bytes;
        Self {
            world: Rc::new(RefCell::new(World::new(bytes, 3, seed))),
            layout,
            mutation: mutation.clone(),
        }
    }

    pub(crate) fn memory(&self, host: usize) -> Adversary {
        Adversary::undisturbed(&self.world, host, &self.mutation)
    }

    /// A process on `host` that owns a slot of `domain`.
    pub(crate) fn join(&self, host: usize, domain: u32, process: u32) -> Core<Adversary> {
        self.join_epoch(host, domain, process, 1)
    }

    pub(crate) fn join_epoch(
        &self,
        host: usize,
        domain: u32,
        process: u32,
        epoch: u64,
    ) -> Core<Adversary> {
        let core = self.core(self.memory(host), domain, process, epoch);
        core.enter(core.own.as_ref().expect("an owner"), process);
        core
    }

    pub(crate) fn core(
        &self,
        mem: Adversary,
        domain: u32,
        process: u32,
        epoch: u64,
    ) -> Core<Adversary> {
        let identity = Identity {
            uuid: [9; 16],
            epoch,
            software: true,
            formatted_seconds: 0,
        };
        let own = Own {
            domain,
            process,
            extents: vec![Extent {
                local: 0,
                chunk: domain * CHUNKS,
                count: CHUNKS,
            }],
        };
        Core::new(mem, self.layout.clone(), identity, Some(own), now_ms)
    }

    /// A process of host 0, in its domain, that can be stopped or killed between two steps.
    pub(crate) fn spawn(
        &self,
        process: u32,
        body: impl FnOnce(&Core<Adversary>) + 'static,
    ) -> Actor {
        let stage = Self {
            world: Rc::clone(&self.world),
            layout: self.layout.clone(),
            mutation: self.mutation.clone(),
        };
        Actor::spawn(&self.world, 0, &self.mutation, move |mem| {
            body(&stage.core(mem, 0, process, 1));
        })
    }

    /// A fence of the test's own: what this process begins later is not taken for earlier.
    pub(crate) fn fence(&self, mem: &Adversary) {
        self.world.borrow_mut().full_fence(mem.process);
    }

    /// Brings domain 0's tags and headers into the cache of the process's host.
    pub(crate) fn cache_directory(&self, mem: &Adversary) {
        mem.load(self.layout.tags(0, 0));
        for header in 0..self.layout.headers() {
            mem.load(self.layout.header(0, header));
        }
    }

    pub(crate) fn damage(&self, at: u64, change: impl Fn(u64) -> u64) {
        self.world.borrow_mut().damage(at, change);
    }

    pub(crate) fn strays(&self) -> Wrong {
        let strays = self.world.borrow().strays;
        wrong_unless(strays == 0, format!("{strays} accesses outside the region"))
    }
}

/// Stores one version of an object.
pub(crate) fn put(core: &Core<Adversary>, key: usize, version: u64) -> bool {
    let mut bytes = content(key, version);
    let list = piece(&mut bytes);
    let mut scratch = Scratch::default();
    core.put(&digest(key), shape(key), Buffers::List(&list), &mut scratch)
        .is_ok()
}

/// Stores what was reserved, without publishing it.
pub(crate) fn write(core: &Core<Adversary>, place: Place, key: usize, version: u64) -> bool {
    let mut bytes = content(key, version);
    let list = piece(&mut bytes);
    let mut scratch = Scratch::default();
    core.write(place, 0, Buffers::List(&list), &mut scratch)
        .is_ok()
}

/// Where an object lies.
pub(crate) fn find(core: &Core<Adversary>, key: usize) -> Option<Place> {
    core.locate(&digest(key), Accept::Valid)
}

/// Reads by reference: the bytes, if the read says that they are the object's.
pub(crate) fn read_at(core: &Core<Adversary>, place: Place) -> Result<Vec<u8>, Miss> {
    read_as(core, place, None)
}

fn read_as(core: &Core<Adversary>, place: Place, key: Option<&Digest>) -> Result<Vec<u8>, Miss> {
    let mut bytes = vec![0; 256];
    let list = piece(&mut bytes);
    let mut scratch = Scratch::default();
    let buffers = Buffers::List(&list);
    let n = core.read(place, key, Units::ALL, buffers, &mut scratch)?;
    bytes.truncate(n as usize);
    Ok(bytes)
}

/// Wrong when a read succeeded with anything but `key`'s bytes.
pub(crate) fn wrong_bytes(key: usize, read: &Result<Vec<u8>, Miss>) -> Wrong {
    let is_right = read.as_ref().map_or(true, |bytes| {
        bytes.len() == content(key, 0).len() && is_content(key, bytes)
    });
    wrong_unless(is_right, format!("key {key}: {read:02x?}"))
}
