//! Contestants and the paired rounds between them.

use crate::memory::{Memory, cpu_seconds};
use crate::pair::Pair;
use crate::work::{Direction, Object};
use hymcache_copy::kernel::CopyFn;
use hymcache_copy::{Choice, Kernel, bare, copy_pieces, copy_pieces_invalidated, line};
use std::io::Result;
use std::time::Instant;

type CopyObject<'a> = Box<dyn Fn(&Object) -> Option<u32> + 'a>;

/// Bytes copied between two looks at the clock.
const TURN_BYTES: usize = 8 << 20;

/// One object as the product would: pieces in order, invalidated first where another host writes, a fence at the end.
pub(crate) fn copy_object(copy: CopyFn, object: &Object, direction: Direction) -> u32 {
    // SAFETY: pieces are valid and apart.
    let crc = unsafe {
        if direction == Direction::GetForeign {
            copy_pieces_invalidated(copy, &object.pieces, 0)
        } else {
            copy_pieces(copy, &object.pieces, 0)
        }
    };
    line::sfence();
    crc
}

fn chosen_copy(choice: &Choice, object: &Object, direction: Direction) -> CopyFn {
    if direction.is_put() {
        choice.put_copy()
    } else {
        choice.get_copy(object.bytes())
    }
}

/// Something that copies objects; returns a CRC where it computes one.
pub(crate) struct Contestant<'a> {
    pub(crate) name: String,
    pub(crate) verifies: bool,
    copy: CopyObject<'a>,
    pub(crate) seconds: Vec<f64>,
    pub(crate) cpu: Vec<f64>,
    pub(crate) object_seconds: Vec<f64>,
    pub(crate) objects: u64,
    pub(crate) wrong: u64,
}

impl<'a> Contestant<'a> {
    fn new(name: String, verifies: bool, copy: CopyObject<'a>) -> Self {
        let (seconds, cpu, object_seconds) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            name,
            verifies,
            copy,
            seconds,
            cpu,
            object_seconds,
            objects: 0,
            wrong: 0,
        }
    }

    /// An unverified copy, piece by piece.
    pub(crate) fn bare(bare: bare::Bare) -> Self {
        let copy = move |object: &Object| {
            // SAFETY: pieces are valid, apart, and multiples of 256 bytes; region slots and engine pages are aligned.
            object
                .pieces
                .iter()
                .for_each(|p| unsafe { (bare.copy)(p.dst, p.src, p.len) });
            None
        };
        Self::new(bare.name.to_owned(), false, Box::new(copy))
    }

    /// A kernel with one kind of stores.
    pub(crate) fn kernel(kernel: &'a Kernel, non_temporal: bool, direction: Direction) -> Self {
        let (copy, stores) = if non_temporal {
            (kernel.copy_nt_crc, "nt")
        } else {
            (kernel.copy_crc, "st")
        };
        let whole = move |object: &Object| Some(copy_object(copy, object, direction));
        Self::new(format!("{} {stores}", kernel.name), true, Box::new(whole))
    }

    /// What the product would use.
    pub(crate) fn choice(choice: Choice, direction: Direction) -> Self {
        let copy = move |object: &Object| {
            Some(copy_object(
                chosen_copy(&choice, object, direction),
                object,
                direction,
            ))
        };
        Self::new("chosen".to_owned(), true, Box::new(copy))
    }

    /// The same with the second thread for half of every object.
    pub(crate) fn pair(choice: Choice, pair: &'a Pair, direction: Direction) -> Self {
        let copy = move |object: &Object| {
            pair.copy(chosen_copy(&choice, object, direction), object, direction)
        };
        Self::new("chosen".to_owned(), true, Box::new(copy))
    }

    /// The same, but it copies every object that many times: a kernel that is slower than it should be.
    pub(crate) fn slowed(self, times: usize) -> Self {
        let copy = self.copy;
        let again = move |object: &Object| {
            for _ in 1..times {
                copy(object);
            }
            copy(object)
        };
        Self::new(self.name, self.verifies, Box::new(again))
    }

    /// Compares by CPU time from now on.
    pub(crate) fn count_cpu_time(&mut self) {
        self.seconds.clone_from(&self.cpu);
    }

    /// Copies some objects from `cursor` on, timed; then checks what arrived, untimed.
    pub(crate) fn turn(&mut self, objects: &[Object], cursor: &mut usize) {
        let bytes = objects[0].bytes();
        let count = (TURN_BYTES / bytes).max(1);
        let chosen: Vec<&Object> = (0..count)
            .map(|i| &objects[(*cursor + i) % objects.len()])
            .collect();
        *cursor += count;
        let mut answers = Vec::with_capacity(count);
        let (cpu, started) = (cpu_seconds(), Instant::now());
        let mut before = 0.0;
        for object in &chosen {
            answers.push((self.copy)(object));
            let now = started.elapsed().as_secs_f64();
            self.object_seconds.push(now - before);
            before = now;
        }
        let seconds = started.elapsed().as_secs_f64();
        let moved = float(count * bytes);
        self.cpu.push((cpu_seconds() - cpu) / moved);
        self.seconds.push(seconds / moved);
        self.objects += count as u64;
        let crc_right =
            |object: &Object, crc: Option<u32>| crc.map_or(!self.verifies, |crc| crc == object.crc);
        for (object, crc) in chosen.iter().zip(answers) {
            self.wrong += u64::from(!crc_right(object, crc) || !object.arrived());
            object.spoil();
        }
    }
}

/// Rounds in which every contestant follows and is followed by others; `first` is the one the rest is divided by.
pub(crate) fn paired_rounds(contestants: &mut [Contestant], objects: &[Object], rounds: usize) {
    let mut cursor = 0;
    for round in 0..rounds {
        let count = contestants.len();
        for i in 0..count {
            // The order rotates, so that nobody always runs on another's warm caches.
            contestants[(i + round) % count].turn(objects, &mut cursor);
        }
    }
}

/// As [`paired_rounds`], but every contestant after the first stores into populated pages nobody has written before,
/// out of every cache; the first, the baseline, keeps its used slots.
pub(crate) fn fresh_rounds(
    contestants: &mut [Contestant],
    used: &[Object],
    rounds: usize,
) -> Result<()> {
    let mut cursor = 0;
    for _ in 0..rounds {
        let (baseline, others) = contestants.split_at_mut(1);
        baseline[0].turn(used, &mut cursor);
        for contestant in others {
            let bytes = used[0].bytes();
            let count = (TURN_BYTES / bytes).max(1);
            let fresh = Memory::region(count * bytes)?;
            // SAFETY: the whole new mapping.
            unsafe { line::flush_range(fresh.at(0), count * bytes) };
            let moved = |i: usize| used[(cursor + i) % used.len()].moved_to(fresh.at(i * bytes));
            contestant.turn(&(0..count).map(moved).collect::<Vec<_>>(), &mut 0);
            // The next one's sources are others: these are in the caches now.
            cursor += count;
        }
    }
    Ok(())
}

/// Name of the fastest among those that verify (or among those that do not), none of whose copies was wrong.
pub(crate) fn fastest(survey: &[Contestant], verifies: bool) -> String {
    let fit = survey
        .iter()
        .filter(|c| c.verifies == verifies && c.wrong == 0);
    let speed = |c: &Contestant| ratio(&survey[0].seconds, &c.seconds);
    fit.max_by(|a, b| speed(a).total_cmp(&speed(b)))
        .map_or_else(String::new, |c| c.name.clone())
}

/// Median of a list; 0 for an empty one.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Counts and byte numbers here are far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^52")]
fn float(number: usize) -> f64 {
    number as f64
}

/// Nearest-rank quantile of a list; 0 for an empty one.
pub(crate) fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let below = |rank: &usize| float(*rank) < float(sorted.len()) * q;
    let rank = (0..sorted.len())
        .find(|rank| !below(rank))
        .unwrap_or(sorted.len().saturating_sub(1));
    sorted.get(rank).copied().unwrap_or(0.0)
}

/// Median over the rounds of `baseline / contestant`: above 1 the contestant is faster.
pub(crate) fn ratio(baseline: &[f64], contestant: &[f64]) -> f64 {
    median(
        &baseline
            .iter()
            .zip(contestant)
            .map(|(b, c)| b / c)
            .collect::<Vec<_>>(),
    )
}
