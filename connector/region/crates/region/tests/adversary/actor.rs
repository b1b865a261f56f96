//! Processes of the model: coroutines that give control back before every access to memory, and may be forgotten there.

use crate::world::{LINE, World};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use hymcache_region::buffers::Piece;
use hymcache_region::memory::{Check, Memory, Step};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ptr;
use std::rc::Rc;

/// What is left out of the protocol in a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mutation {
    /// Flushes and fences that do not happen.
    pub(crate) skip: HashSet<Step>,
    /// Checks that always pass.
    pub(crate) blind: HashSet<Check>,
}

/// Memory as one process of the model sees it.
pub(crate) struct Adversary {
    world: Rc<RefCell<World>>,
    pub(crate) process: usize,
    mutation: Mutation,
    yielder: Rc<Cell<*const Yielder<(), ()>>>,
}

impl Adversary {
    /// A process on `host` that runs without interruption: for setting up.
    pub(crate) fn quiet(world: &Rc<RefCell<World>>, host: usize) -> Self {
        Self::undisturbed(world, host, &Mutation::default())
    }

    /// A process that runs without interruption, in a world that does nothing on its own meanwhile.
    pub(crate) fn undisturbed(
        world: &Rc<RefCell<World>>,
        host: usize,
        mutation: &Mutation,
    ) -> Self {
        let process = world.borrow_mut().join(host);
        Self {
            world: Rc::clone(world),
            process,
            mutation: mutation.clone(),
            yielder: Rc::new(Cell::new(ptr::null())),
        }
    }

    /// Ends the step: the scheduler may run others, or never come back.
    fn step(&self) {
        let yielder = self.yielder.get();
        if !yielder.is_null() {
            // SAFETY: set by the coroutine that this code runs in, whose stack holds the yielder.
            unsafe { (*yielder).suspend(()) };
            self.world.borrow_mut().stir();
        }
    }

    fn is_inside(&self, at: u64, len: u64) -> bool {
        let mut world = self.world.borrow_mut();
        let inside = at.checked_add(len).is_some_and(|end| end <= world.bytes());
        world.strays += u64::from(!inside);
        inside
    }

    fn lines(at: u64, len: u64) -> impl Iterator<Item = u64> {
        at / LINE..(at + len).div_ceil(LINE)
    }

    /// Parts of a range, one line each: (place, offset from the start, bytes).
    fn parts(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let place = at + done as u64;
            let part = (len - done).min((LINE - place % LINE) as usize);
            let item = (place, done, part);
            done += part;
            (part > 0).then_some(item)
        })
    }
}

impl Mutation {
    /// The same, and these checks pass too.
    pub(crate) fn and_blind(&self, checks: &[Check]) -> Self {
        let mut more = self.clone();
        more.blind.extend(checks);
        more
    }
}

impl Memory for Adversary {
    fn load(&self, at: u64) -> u64 {
        self.step();
        if !self.is_inside(at, 8) {
            return 0;
        }
        self.world.borrow_mut().load(self.process, at)
    }

    fn store(&self, at: u64, value: u64) {
        self.step();
        if self.is_inside(at, 8) {
            self.world
                .borrow_mut()
                .modify(self.process, at, |_| Some(value));
        }
    }

    fn cas(&self, at: u64, old: u64, new: u64) -> Result<u64, u64> {
        self.step();
        if !self.is_inside(at, 8) {
            return Err(0);
        }
        let found = self
            .world
            .borrow_mut()
            .modify(self.process, at, |word| (word == old).then_some(new));
        self.world.borrow_mut().tempting = found == old;
        if found == old { Ok(old) } else { Err(found) }
    }

    fn add(&self, at: u64, value: u64) -> u64 {
        self.step();
        if !self.is_inside(at, 8) {
            return 0;
        }
        self.world
            .borrow_mut()
            .modify(self.process, at, |word| Some(word.wrapping_add(value)))
    }

    fn flush(&self, at: u64, len: u64, step: Step) {
        self.step();
        if !self.mutation.skip.contains(&step) && self.is_inside(at, len) {
            for line in Self::lines(at, len) {
                self.world.borrow_mut().flush(self.process, line, true);
            }
        }
    }

    fn invalidate(&self, at: u64, len: u64, step: Step) {
        self.step();
        if !self.mutation.skip.contains(&step) && self.is_inside(at, len) {
            for line in Self::lines(at, len) {
                self.world.borrow_mut().flush(self.process, line, false);
            }
        }
    }

    fn store_fence(&self, step: Step) {
        self.step();
        if !self.mutation.skip.contains(&step) {
            self.world.borrow_mut().settle(self.process);
        }
    }

    fn full_fence(&self, step: Step) {
        self.step();
        if !self.mutation.skip.contains(&step) {
            self.world.borrow_mut().full_fence(self.process);
        }
    }

    fn prefetch(&self, _: u64) {}

    fn copy_in(&self, at: u64, from: Piece, crc: u32) -> Option<u32> {
        if !self.is_inside(at, from.len() as u64) {
            return None;
        }
        // SAFETY: the piece's maker keeps it readable during the call.
        let bytes = unsafe { std::slice::from_raw_parts(from.address(), from.len()) };
        for (place, offset, part) in Self::parts(at, bytes.len()) {
            self.step();
            let part = &bytes[offset..offset + part];
            self.world
                .borrow_mut()
                .store_past_caches(self.process, place, part);
        }
        Some(self.crc(crc, bytes))
    }

    fn copy_out(&self, at: u64, to: Piece, crc: u32, _: u64) -> Option<u32> {
        if !self.is_inside(at, to.len() as u64) {
            return None;
        }
        // SAFETY: the piece's maker keeps it writable during the call, and nobody else looks at it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(to.address(), to.len()) };
        for (place, offset, part) in Self::parts(at, bytes.len()) {
            self.step();
            for i in 0..part {
                let byte = place + i as u64;
                let word = self.world.borrow_mut().load(self.process, byte & !7);
                bytes[offset + i] = (word >> (8 * (byte % 8))) as u8;
            }
        }
        Some(self.crc(crc, bytes))
    }

    fn crc(&self, crc: u32, bytes: &[u8]) -> u32 {
        hymcache_copy::crc32c(crc, bytes)
    }

    fn is_intact(&self) -> bool {
        true
    }

    fn judge(&self, check: Check, verdict: bool) -> bool {
        verdict || self.mutation.blind.contains(&check)
    }
}

/// A process under the scheduler.
pub(crate) struct Actor {
    coroutine: Coroutine<(), (), ()>,
    pub(crate) process: usize,
    world: Rc<RefCell<World>>,
}

impl Actor {
    /// Starts `body` as a process on `host`; nothing runs before the first [`Actor::resume`].
    pub(crate) fn spawn(
        world: &Rc<RefCell<World>>,
        host: usize,
        mutation: &Mutation,
        body: impl FnOnce(Adversary) + 'static,
    ) -> Self {
        let process = world.borrow_mut().join(host);
        let yielder = Rc::new(Cell::new(ptr::null()));
        let memory = Adversary {
            world: Rc::clone(world),
            process,
            mutation: mutation.clone(),
            yielder: Rc::clone(&yielder),
        };
        let coroutine = Coroutine::new(move |own: &Yielder<(), ()>, ()| {
            yielder.set(own);
            body(memory);
        });
        Self {
            coroutine,
            process,
            world: Rc::clone(world),
        }
    }

    /// Runs one step. True when the process has ended.
    pub(crate) fn resume(&mut self) -> bool {
        matches!(self.coroutine.resume(()), CoroutineResult::Return(()))
    }

    /// The process is no more: no destructor runs, nothing it meant to do happens. What it had issued already is carried
    /// out by the time its death can be proven, as the kernel passes many fences before it gives its locks back.
    pub(crate) fn crash(mut self) {
        if self.coroutine.started() && !self.coroutine.done() {
            // SAFETY: what lies on the stack is forgotten; it holds shared ownership of the world and plain memory.
            unsafe { self.coroutine.force_reset() };
        }
        self.world.borrow_mut().settle(self.process);
    }
}
