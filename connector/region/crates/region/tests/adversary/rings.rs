//! A ring of two lines between hosts: producers that lap one another, die and stand still, one consumer elsewhere.
//!
//! Each entry says the same in several of its words, so one that mixes two is seen. The consumer accounts for every
//! sequence number: it got the entry, or counted it as missed. With one producer it must end up with the last entry,
//! however lazy the caches are: that is what the ring's flushes and fences are for. The same is asked of the counters of
//! lookups.

use crate::actor::{Actor, Adversary, Mutation};
use crate::scenario::{Fault, Faults, Outcome, at, now_ms};
use crate::stage::Wrong;
use crate::world::{Random, World};
use hymcache_region::core::Core;
use hymcache_region::digest::Digest;
use hymcache_region::hint::{Hint, Terms};
use hymcache_region::layout::{Counter, Geometry, Layout, Ring};
use hymcache_region::memory::Memory as _;
use hymcache_region::ring::Cursor;
use hymcache_region::stats::Event;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const ENTRIES: u32 = 2;
const PUSHES: usize = 20;
const LOOKS: usize = 30;
const STEPS_MAX: u64 = 20_000;
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
const LATER_MS: u64 = 1 << 47;

fn layout() -> Layout {
    Layout::new(Geometry {
        bytes: 1 << 20,
        granule: 4096,
        chunk_bytes: 64,
        domain_chunks: 1,
        domains: 2,
        sets: 1,
        table_lines: 1,
        processes: 4,
        namespaces: 1,
        quarantine_lines: 1,
        rings: [ENTRIES; 4],
    })
    .expect("a valid geometry")
}

fn produce(core: &Core<Adversary>, version: u64) -> usize {
    let object = Digest {
        a: version,
        b: version.wrapping_mul(SPREAD),
        c: version as u32,
        tag: 5,
    };
    let terms = Terms {
        request: version ^ SPREAD,
        deadline_ms: LATER_MS,
        priority: version as u8,
        units: version as u32,
    };
    core.prefetch(&[object], terms)
}

fn is_whole(hint: &Hint) -> bool {
    hint.object.is_some_and(|object| {
        let version = object.a;
        object.b == version.wrapping_mul(SPREAD)
            && object.c == version as u32
            && object.tag == 5
            && hint.terms.request == version ^ SPREAD
            && hint.terms.deadline_ms == LATER_MS
            && hint.terms.priority == version as u8
            && hint.terms.units == version as u32
    })
}

/// What the consumer has so far.
#[derive(Default)]
struct Consumer {
    cursor: Cursor,
    got: u64,
    missed: u64,
    last: u64,
}

impl Consumer {
    fn look(&mut self, core: &Core<Adversary>, limit: usize, outcome: &RefCell<Outcome>) {
        let (got, last) = (&mut self.got, &mut self.last);
        let missed = core.hints(0, &mut self.cursor, limit, |sequence, hint| {
            *got += 1;
            let mut outcome = outcome.borrow_mut();
            if !is_whole(hint) {
                outcome
                    .wrong
                    .push(format!("entry {sequence} mixes two: {hint:?}"));
            }
            if sequence <= *last {
                outcome.wrong.push(format!("entry {sequence} after {last}"));
            }
            *last = sequence;
        });
        self.missed += missed;
        if self.got + self.missed != self.cursor.next - 1 {
            outcome.borrow_mut().wrong.push(format!(
                "{} entries and {} missed do not lead to {:?}",
                self.got, self.missed, self.cursor
            ));
        }
    }
}

/// What goes wrong without faults.
pub(crate) fn told(mutation: &Mutation, seed: u64) -> Wrong {
    run(seed, mutation, &[]).wrong
}

/// One run: everything that happens follows from the arguments.
pub(crate) fn run(seed: u64, mutation: &Mutation, faults: Faults) -> Outcome {
    let layout = layout();
    let bytes = layout.chunk(layout.chunks - 1) + layout.geometry.chunk_bytes;
    let world = Rc::new(RefCell::new(World::new(bytes, 2, seed)));
    if faults.contains(&Fault::LateWriteBacks) {
        let first = layout.ring_line(0, Ring::Prefetch, 0);
        let ring = first..first + 64 * u64::from(ENTRIES);
        world.borrow_mut().inject_late_write_backs(vec![ring]);
    }
    let outcome = Rc::new(RefCell::new(Outcome::default()));
    let version = Rc::new(Cell::new(1));
    let consumer = Rc::new(RefCell::new(Consumer {
        cursor: Cursor { next: 1, gap_ms: 0 },
        ..Consumer::default()
    }));
    let producers = 1 + (seed % 2) as u32;
    let mut random = Random::new(seed ^ 0xFACE);
    let mut actors = Vec::new();
    for process in 0..producers {
        let (layout, outcome, version) = (layout.clone(), Rc::clone(&outcome), Rc::clone(&version));
        actors.push(Actor::spawn(&world, 0, mutation, move |mem| {
            let core = at(mem, &layout, 0, process);
            for _ in 0..PUSHES {
                let sent = produce(&core, version.replace(version.get() + 1));
                outcome.borrow_mut().stored += sent as u64;
            }
        }));
    }
    let (shared, found, seed) = (Rc::clone(&consumer), Rc::clone(&outcome), random.next());
    let place = layout.clone();
    actors.push(Actor::spawn(&world, 1, mutation, move |mem| {
        let core = at(mem, &place, 1, 0);
        let mut random = Random::new(seed);
        for _ in 0..LOOKS {
            now_ms();
            let limit = 1 + random.below(4);
            // Taken out meanwhile: a process that is ended in the middle must leave no borrow.
            let mut consumer = shared.take();
            consumer.look(&core, limit, &found);
            shared.replace(consumer);
        }
    }));
    let crashed = schedule(&world, faults, &mut random, actors, &outcome);
    let calm = faults.is_empty() && !crashed && producers == 1;
    if calm && outcome.borrow().wrong.is_empty() {
        expect_all(&world, &layout, mutation, &consumer, &outcome);
    }
    let steps = world.borrow().steps;
    let mut outcome = outcome.take();
    outcome.hits = consumer.borrow().got;
    outcome.steps = steps;
    outcome
}

/// The producer is done: a look on the other host finds its last entry at once.
fn expect_all(
    world: &Rc<RefCell<World>>,
    layout: &Layout,
    mutation: &Mutation,
    consumer: &RefCell<Consumer>,
    outcome: &RefCell<Outcome>,
) {
    let core = at(Adversary::undisturbed(world, 1, mutation), layout, 1, 0);
    let mut consumer = consumer.borrow_mut();
    consumer.look(&core, usize::MAX, outcome);
    let ticket = Adversary::quiet(world, 0).load(layout.ring_ticket(0, Ring::Prefetch));
    if consumer.cursor.next != ticket + 1 {
        let text = format!("entries up to {ticket} were told, {:?}", consumer.cursor);
        outcome.borrow_mut().wrong.push(text);
    }
}

/// Runs the actors; true when one was ended before it was done.
fn schedule(
    world: &Rc<RefCell<World>>,
    faults: Faults,
    random: &mut Random,
    mut actors: Vec<Actor>,
    outcome: &RefCell<Outcome>,
) -> bool {
    let mut crashes_left = if faults.contains(&Fault::Crashes) {
        2
    } else {
        0
    };
    let mut crashed = false;
    while !actors.is_empty() && outcome.borrow().wrong.is_empty() {
        if world.borrow().steps > STEPS_MAX {
            break;
        }
        let index = random.below(actors.len());
        let longest = [4, 30, 300][random.below(3)];
        let burst = 1 + random.below(longest);
        for _ in 0..burst {
            let is_producer = actors.len() > 1 && index + 1 < actors.len();
            if crashes_left > 0 && is_producer && random.one_in(60) {
                crashes_left -= 1;
                crashed = true;
                actors.remove(index).crash();
                outcome.borrow_mut().crashes += 1;
                break;
            }
            if actors[index].resume() {
                actors.remove(index);
                break;
            }
        }
    }
    crashed |= !actors.is_empty();
    actors.into_iter().for_each(Actor::crash);
    crashed
}

/// One host counts, the other has looked before and looks again.
pub(crate) fn tallied(mutation: &Mutation, seed: u64) -> Wrong {
    let layout = layout();
    let bytes = layout.chunk(layout.chunks - 1) + layout.geometry.chunk_bytes;
    let world = Rc::new(RefCell::new(World::new(bytes, 2, seed)));
    let process = |host, domain| {
        let mem = Adversary::undisturbed(&world, host, mutation);
        at(mem, &layout, domain, 0)
    };
    let (owner, reporter) = (process(0, 0), process(1, 1));
    for hits in 1..4 {
        owner.stats.add(Event::LookupKeys, 5);
        owner.stats.add(Event::LookupHits, 1);
        owner.tally(owner.own.as_ref().expect("attached for writing"));
        let counters = [Counter::Hits, Counter::Misses];
        let found = counters.map(|counter| reporter.tallied(0, counter));
        if found != [hits, 4 * hits] {
            return vec![format!("{found:?} after {hits} of {} keys", 5 * hits)];
        }
    }
    Vec::new()
}
