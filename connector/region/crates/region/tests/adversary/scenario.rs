//! Two hosts, two domains of three chunks each, a handful of processes, three keys that do not fit together.
//!
//! Every version of an object has bytes of its own, so a read that mixes two of anything is seen. All keys share their
//! tag and their set: only the comparison of keys keeps them apart.

use crate::actor::{Actor, Adversary, Mutation};
use crate::world::{Random, World};
use hymcache_region::buffers::{Buffers, Piece};
use hymcache_region::core::{Core, Extent, Identity, Own, Place, Scratch};
use hymcache_region::digest::Digest;
use hymcache_region::domain::format_domain;
use hymcache_region::layout::{Counter, Geometry, Layout};
use hymcache_region::memory::{Memory, Step};
use hymcache_region::read::Units;
use hymcache_region::words::{ChunkWord, HeaderWord};
use hymcache_region::write::Shape;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

pub(crate) const KEYS: usize = 3;
pub(crate) const CHUNKS: u32 = 3;
/// (units, bytes of a unit): one chunk, two full chunks (hence two batches of a read), one full chunk.
const SHAPES: [(u16, u32); KEYS] = [(1, 120), (2, 128), (1, 128)];
const ROUNDS: usize = 12;
const STEPS_MAX: u64 = 60_000;

/// What goes wrong in a run besides caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Processes die between any two steps.
    Crashes,
    /// Lines of the payload and of tables come back from the past.
    LateWriteBacks,
    /// Not a fault: reserve and commit run in one process, the write in another.
    Split,
    /// The reader uses references that nobody gave out, and nothing else.
    Guesses,
}

pub(crate) type Faults = &'static [Fault];

/// What happened in a run.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) wrong: Vec<String>,
    pub(crate) steps: u64,
    pub(crate) hits: u64,
    pub(crate) stored: u64,
    pub(crate) crashes: u64,
}

/// What processes of a run share outside the modelled memory.
struct Shared {
    layout: Layout,
    outcome: RefCell<Outcome>,
    version: Cell<u64>,
    /// Reservations for the writer, and those it is done with (stored or not).
    jobs: RefCell<VecDeque<(Place, usize)>>,
    done: RefCell<Vec<Place>>,
    /// Processes that died and are not swept yet; who is sweeping.
    dead: RefCell<Vec<u32>>,
    sweeper: Cell<Option<u32>>,
}

thread_local! {
    static MILLISECONDS: Cell<u64> = const { Cell::new(1) };
}

/// Time passes with every look at the clock.
pub(crate) fn now_ms() -> u64 {
    MILLISECONDS.with(|now| {
        now.set(now.get() + 20);
        now.get()
    })
}

pub(crate) fn digest(key: usize) -> Digest {
    Digest {
        a: key as u64 + 1,
        b: 7,
        c: key as u32,
        tag: 5,
    }
}

pub(crate) fn content(key: usize, version: u64) -> Vec<u8> {
    let (units, unit_bytes) = SHAPES[key];
    let words = u64::from(units) * u64::from(unit_bytes) / 8;
    (0..words)
        .flat_map(|i| ((key as u64 + 1) << 56 | version << 16 | i).to_le_bytes())
        .collect()
}

pub(crate) fn is_content(key: usize, bytes: &[u8]) -> bool {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    let version = u64::from_le_bytes(first) << 8 >> 24;
    bytes == content(key, version)
}

pub(crate) fn piece(bytes: &mut [u8]) -> [Piece; 1] {
    // SAFETY: callers keep the vector until the call that gets the piece is over.
    [unsafe { Piece::new(bytes.as_mut_ptr(), bytes.len()) }]
}

pub(crate) fn layout() -> Layout {
    Layout::new(Geometry {
        bytes: 1 << 20,
        granule: 4096,
        chunk_bytes: 128,
        domain_chunks: CHUNKS,
        domains: 2,
        sets: 1,
        table_lines: 1,
        processes: 4,
        namespaces: 1,
        quarantine_lines: 1,
        rings: [1; 4],
    })
    .expect("a valid geometry")
}

fn core(shared: &Shared, mem: Adversary, domain: u32, process: u32) -> Core<Adversary> {
    at(mem, &shared.layout, domain, process)
}

/// A process of a domain of a region that is laid out so.
pub(crate) fn at(mem: Adversary, layout: &Layout, domain: u32, process: u32) -> Core<Adversary> {
    let chunks = layout.geometry.domain_chunks;
    let identity = Identity {
        uuid: [9; 16],
        epoch: 1,
        software: true,
        formatted_seconds: 0,
    };
    let own = Own {
        domain,
        process,
        extents: vec![Extent {
            local: 0,
            chunk: domain * chunks,
            count: chunks,
        }],
    };
    Core::new(mem, layout.clone(), identity, Some(own), now_ms)
}

fn own(core: &Core<Adversary>) -> &Own {
    core.own.as_ref().expect("attached for writing")
}

pub(crate) fn shape(key: usize) -> Shape {
    let (units, unit_bytes) = SHAPES[key];
    Shape {
        units,
        unit_bytes,
        sections: 1,
        namespace: 0,
    }
}

/// Sweeps the dead, as a janitor does between two requests.
fn sweep(shared: &Shared, core: &Core<Adversary>, me: u32) {
    let dead = shared.dead.borrow().first().copied();
    if let Some(process) = dead.filter(|_| shared.sweeper.get().is_none()) {
        shared.sweeper.set(Some(me)); // the lock byte
        core.sweep_process(own(core), process);
        shared.sweeper.set(None);
        shared.dead.borrow_mut().retain(|&p| p != process);
    }
}

/// Stores, evicts, reads its own domain.
fn storer(shared: &Rc<Shared>, mem: Adversary, domain: u32, process: u32, seed: u64) {
    let core = core(shared, mem, domain, process);
    core.enter(own(&core), process);
    let (mut random, mut scratch) = (Random::new(seed), Scratch::default());
    for _ in 0..ROUNDS {
        sweep(shared, &core, process);
        let key = random.below(KEYS);
        if random.one_in(2) {
            core.evict_key(&digest(key));
        }
        if random.one_in(3) {
            read(shared, &core, key, &mut scratch);
        } else {
            let version = shared.version.replace(shared.version.get() + 1);
            let mut bytes = content(key, version);
            let stored = core.put(
                &digest(key),
                shape(key),
                Buffers::List(&piece(&mut bytes)),
                &mut scratch,
            );
            shared.outcome.borrow_mut().stored += u64::from(stored.is_ok());
        }
    }
    core.leave(own(&core));
}

/// Reserves and commits what a writer stores.
fn reserver(shared: &Rc<Shared>, mem: Adversary, process: u32, seed: u64) {
    let core = core(shared, mem, 0, process);
    core.enter(own(&core), process);
    let (mut random, mut scratch) = (Random::new(seed), Scratch::default());
    for _ in 0..ROUNDS {
        sweep(shared, &core, process);
        let key = random.below(KEYS);
        if random.one_in(2) {
            core.evict_key(&digest(key));
        }
        let Ok(place) = core.reserve(&digest(key), shape(key), &mut scratch) else {
            continue;
        };
        shared.jobs.borrow_mut().push_back((place, key));
        // Waits a while, then gives up: a step of the model per look.
        let patience = [6, 40, 150][random.below(3)];
        for _ in 0..random.below(patience) {
            core.show(own(&core));
            if shared.done.borrow().contains(&place) {
                break;
            }
        }
        if core.commit(place, &mut scratch).is_ok() {
            shared.outcome.borrow_mut().stored += 1;
        } else {
            core.abort(place);
        }
    }
    core.leave(own(&core));
}

/// Stores what another process reserved.
fn writer(shared: &Rc<Shared>, mem: Adversary, process: u32) {
    let core = core(shared, mem, 0, process);
    core.enter(own(&core), process);
    let mut scratch = Scratch::default();
    for _ in 0..ROUNDS * 60 {
        core.show(own(&core));
        sweep(shared, &core, process);
        let job = shared.jobs.borrow_mut().pop_front();
        if let Some((place, key)) = job {
            let version = shared.version.replace(shared.version.get() + 1);
            let mut bytes = content(key, version);
            let _ = core.write(place, 0, Buffers::List(&piece(&mut bytes)), &mut scratch);
            shared.done.borrow_mut().push(place);
        }
    }
    core.leave(own(&core));
}

fn read(shared: &Shared, core: &Core<Adversary>, key: usize, scratch: &mut Scratch) {
    let mut bytes = vec![0; content(key, 0).len()];
    let len = bytes.len() as u64;
    let got = core.get(
        &digest(key),
        Units::ALL,
        Buffers::List(&piece(&mut bytes)),
        scratch,
    );
    if let Ok(n) = got {
        let mut outcome = shared.outcome.borrow_mut();
        outcome.hits += 1;
        if n != len || !is_content(key, &bytes) {
            outcome.wrong.push(format!(
                "key {key}: {n} bytes {:02x?}",
                &bytes[..bytes.len().min(80)]
            ));
        }
    }
}

/// Reads by a reference that nobody gave out: the generation may become valid at any moment.
fn guess(shared: &Shared, core: &Core<Adversary>, random: &mut Random, scratch: &mut Scratch) {
    let header = random.below(2) as u32;
    let word = HeaderWord(core.mem.load(shared.layout.header(0, header)));
    let place = Place {
        domain: 0,
        header,
        generation: word.generation() + random.below(2) as u64,
    };
    let mut bytes = vec![0; 256];
    let got = core.read(
        place,
        None,
        Units::ALL,
        Buffers::List(&piece(&mut bytes)),
        scratch,
    );
    if let Ok(n) = got {
        bytes.truncate(n as usize);
        if !(0..KEYS).any(|key| is_content(key, &bytes)) {
            let text = format!(
                "{place:?}: {n} bytes {:02x?}",
                &bytes[..bytes.len().min(80)]
            );
            shared.outcome.borrow_mut().wrong.push(text);
        }
    }
}

/// Reads the other host's domain, mostly.
fn reader(shared: &Rc<Shared>, mem: Adversary, seed: u64, guesses: usize) {
    let core = core(shared, mem, 1, 0);
    core.enter(own(&core), 0);
    let (mut random, mut scratch) = (Random::new(seed), Scratch::default());
    for _ in 0..ROUNDS * 2 {
        if random.one_in(guesses) {
            guess(shared, &core, &mut random, &mut scratch);
        } else {
            read(shared, &core, random.below(KEYS), &mut scratch);
        }
    }
    core.leave(own(&core));
}

pub(crate) fn format(world: &Rc<RefCell<World>>, layout: &Layout) {
    let mem = Adversary::quiet(world, 0);
    for domain in 0..layout.geometry.domains {
        format_domain(&mem, layout, domain);
        let free = layout.counter(domain, Counter::FreeChunks);
        mem.store(free, CHUNKS.into());
        mem.flush(free, 8, Step::FormatCountersFlush);
    }
    mem.full_fence(Step::SealedFence);
}

fn spawn(
    shared: &Rc<Shared>,
    world: &Rc<RefCell<World>>,
    mutation: &Mutation,
    faults: Faults,
    role: u32,
    seed: u64,
) -> Actor {
    let shared = Rc::clone(shared);
    let host = usize::from(role == 3);
    Actor::spawn(world, host, mutation, move |mem| match role {
        3 => reader(
            &shared,
            mem,
            seed,
            if faults.contains(&Fault::Guesses) {
                1
            } else {
                3
            },
        ),
        2 if faults.contains(&Fault::Split) => writer(&shared, mem, 2),
        0 if faults.contains(&Fault::Split) => reserver(&shared, mem, 0, seed),
        process => storer(&shared, mem, 0, process, seed),
    })
}

/// One run: everything that happens follows from the arguments.
pub(crate) fn run(seed: u64, mutation: &Mutation, faults: Faults) -> Outcome {
    MILLISECONDS.with(|now| now.set(1));
    let layout = layout();
    let bytes = layout.chunk(layout.chunks - 1) + layout.geometry.chunk_bytes;
    let world = Rc::new(RefCell::new(World::new(bytes, 2, seed)));
    format(&world, &layout);
    if faults.contains(&Fault::LateWriteBacks) {
        let end = layout.table(0, CHUNKS - 1) + layout.table_bytes();
        let ranges = vec![layout.pool_at..bytes, layout.table(0, 0)..end];
        world.borrow_mut().inject_late_write_backs(ranges);
    }
    let shared = Rc::new(Shared {
        layout,
        outcome: RefCell::default(),
        version: Cell::new(1),
        jobs: RefCell::default(),
        done: RefCell::default(),
        dead: RefCell::default(),
        sweeper: Cell::new(None),
    });
    let mut random = Random::new(seed ^ 0xABCD);
    let mut actors: Vec<(u32, Actor)> = (0..4)
        .map(|role| {
            (
                role,
                spawn(&shared, &world, mutation, faults, role, random.next()),
            )
        })
        .collect();
    schedule(&shared, &world, mutation, faults, &mut random, &mut actors);
    let ended = actors.is_empty();
    for (_, actor) in actors {
        actor.crash();
    }
    if ended && !faults.contains(&Fault::LateWriteBacks) && mutation.skip.is_empty() {
        account(&shared, &world);
    }
    let steps = world.borrow().steps;
    let mut outcome = shared.outcome.take();
    outcome.steps = steps;
    outcome
}

fn schedule(
    shared: &Rc<Shared>,
    world: &Rc<RefCell<World>>,
    mutation: &Mutation,
    faults: Faults,
    random: &mut Random,
    actors: &mut Vec<(u32, Actor)>,
) {
    let mut crashes_left = if faults.contains(&Fault::Crashes) {
        8
    } else {
        0
    };
    let crash_every = [30, 100, 400][random.below(3)];
    while !actors.is_empty()
        && world.borrow().steps < STEPS_MAX
        && shared.outcome.borrow().wrong.is_empty()
    {
        // Whoever is chosen runs for a while: some processes stand still for long.
        let index = random.below(actors.len());
        let burst = if random.one_in(4) {
            random.below(300)
        } else {
            random.below(12)
        } + 1;
        for _ in 0..burst {
            let chance = if world.borrow().tempting {
                10
            } else {
                crash_every
            };
            if crashes_left > 0 && actors[index].0 != 3 && random.one_in(chance) {
                crashes_left -= 1;
                let (role, actor) = actors.swap_remove(index);
                bury(shared, actor, role);
                if shared.dead.borrow().contains(&role) && random.one_in(2) {
                    // A new process takes the slot, and sweeps it first; nobody else does.
                    shared.dead.borrow_mut().retain(|&p| p != role);
                    actors.push((
                        role,
                        spawn(shared, world, mutation, faults, role, random.next()),
                    ));
                }
                break;
            }
            if actors[index].1.resume() {
                actors.swap_remove(index);
                break;
            }
        }
    }
}

fn bury(shared: &Shared, actor: Actor, role: u32) {
    actor.crash();
    shared.outcome.borrow_mut().crashes += 1;
    shared.dead.borrow_mut().push(role);
    if shared.sweeper.get() == Some(role) {
        shared.sweeper.set(None); // its locks are free now
    }
}

/// After everyone has left and the dead are swept, every chunk is free or held by a header that stands.
fn account(shared: &Rc<Shared>, world: &Rc<RefCell<World>>) {
    let core = core(shared, Adversary::quiet(world, 0), 0, 3);
    let own = own(&core);
    for process in 0..3 {
        core.sweep_process(own, process);
    }
    core.sweep_orphans(own);
    let mut outcome = shared.outcome.borrow_mut();
    let mut free = 0;
    for local in 0..CHUNKS {
        let chunk = ChunkWord(core.mem.load(shared.layout.chunk_word(0, local)));
        free += i64::from(chunk.is_free());
        let kept = chunk.header().is_some_and(|header| {
            let named = HeaderWord(core.mem.load(shared.layout.header(0, header)));
            let standing = named.state().is_some_and(|s| {
                use hymcache_region::words::State;
                matches!(s, State::Valid | State::Retired)
            });
            standing && chunk.is_kept_by(named)
        });
        if !chunk.is_free() && !kept {
            outcome
                .wrong
                .push(format!("chunk {local} is lost: {chunk:?}"));
        }
    }
    let said = core.free_chunks(0).count(); // right after a sweep without anybody beside it
    if said != free {
        outcome
            .wrong
            .push(format!("{said} chunks are said to be free, {free} are"));
    }
}
