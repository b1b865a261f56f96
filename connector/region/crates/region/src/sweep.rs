//! Taking back what processes left behind, on proof of death alone.
//!
//! The proof is the caller's: it holds the lock byte of the slot it sweeps. Everything here may be run by anyone, twice,
//! at the same time, and be cut off anywhere: each step is a compare-and-swap on the word it frees, and what was not
//! reached is found again by looking.

use crate::core::{Core, Own, Place};
use crate::evict::Owner;
use crate::layout::WRITES_MAX;
use crate::memory::{Check, Memory};
use crate::stats::Event;
use crate::words::{ChunkWord, HeaderWord, Life, ProcessWord, State, write_entry, write_holds};

/// A process that has not shown itself for this long may still live, but its keys can be put elsewhere.
pub(crate) const SILENCE_MS: u64 = 2000;
/// A full domain is searched for orphans at most this often.
const ORPHANS_MS: u64 = 100;

/// Words of a process slot's first line, in bytes from its start.
pub mod slot {
    /// Life and incarnation.
    pub const WORD: u64 = 0;
    /// Milliseconds since 1970 when the process last showed itself.
    pub const SEEN_MS: u64 = 8;
    /// Process id in its own namespace: for people.
    pub const PID: u64 = 16;
    /// When it attached, in milliseconds since 1970.
    pub const ATTACHED_MS: u64 = 24;
    /// First of the entries of writes in progress.
    pub const WRITES: u64 = crate::layout::LINE;
}

impl<M: Memory> Core<M> {
    /// Takes a process slot whose lock byte the caller holds, after sweeping what its former holder left. That is done
    /// whatever the slot's word says: it may be damaged, and the lock is the proof.
    pub fn enter(&self, own: &Own, pid: u32) {
        self.take_back(own, own.process);
        self.take_slot(own, pid);
    }

    /// As [`Core::enter`], after freeing everything that is neither free nor an object, and all process slots: what the
    /// dead left, and what no process ever wrote, such as a state without a meaning or an owner that is nobody. While any
    /// process lives nobody may touch the latter: the damaged line may be the one that it stores for.
    ///
    /// The caller proves that no process of the domain lives: it keeps others from taking a slot, holds its own slot's
    /// lock byte, and has seen that nobody holds another one.
    pub fn enter_alone(&self, own: &Own, pid: u32) {
        self.sweep_domain(own);
        self.take_slot(own, pid);
    }

    fn take_slot(&self, own: &Own, pid: u32) {
        let at = self.layout.process(own.domain, own.process);
        let word = ProcessWord(self.mem.load(at + slot::WORD));
        self.mem.store(at + slot::PID, pid.into());
        self.mem.store(at + slot::ATTACHED_MS, (self.now_ms)());
        self.show(own);
        let live = ProcessWord::new(Life::Live, word.incarnation() + 1);
        self.mem.store(at + slot::WORD, live.0);
    }

    /// Leaves the slot in good order: nothing of this process is in progress.
    pub fn leave(&self, own: &Own) {
        self.sweep_process(own, own.process);
    }

    /// Shows that this process is not silent.
    pub fn show(&self, own: &Own) {
        let at = self.layout.process(own.domain, own.process);
        self.mem.store(at + slot::SEEN_MS, (self.now_ms)());
    }

    /// True when a slot is free, or its process has not shown itself lately. Says nothing about its death.
    pub(crate) fn is_silent(&self, own: &Own, process: u32) -> bool {
        if process >= self.layout.geometry.processes {
            return true;
        }
        let at = self.layout.process(own.domain, process);
        let seen = self.mem.load(at + slot::SEEN_MS);
        !self.is_process_live(own, process) || (self.now_ms)().saturating_sub(seen) > SILENCE_MS
    }

    /// True when a slot is taken, by the living or the dead.
    pub fn is_process_live(&self, own: &Own, process: u32) -> bool {
        let at = self.layout.process(own.domain, process);
        ProcessWord(self.mem.load(at + slot::WORD)).is_live()
    }

    /// Process slots of a domain that are taken. The dead count until a process of their host has swept them.
    pub fn processes(&self, domain: u32) -> usize {
        (0..self.layout.geometry.processes)
            .map(|process| self.layout.process(domain, process) + slot::WORD)
            .filter(|&at| self.mem.is_intact() && ProcessWord(self.mem.load(at)).is_live())
            .count()
    }

    /// Frees everything a dead process held, then its slot. The caller holds the slot's lock byte.
    pub fn sweep_process(&self, own: &Own, process: u32) {
        if self.is_process_live(own, process) {
            self.take_back(own, process);
        }
    }

    fn take_back(&self, own: &Own, process: u32) {
        let is_left = |word: HeaderWord| {
            (word.is(State::Writing) || word.is(State::Leaving)) && word.owner() == process
        };
        self.forget_writes(own, process);
        let released = self.release_where(own, is_left);
        if released > 0 || self.is_process_live(own, process) {
            let chunks = self.sweep_orphans(own);
            self.stats.add(Event::ReclaimedChunks, chunks);
        }
        self.free_slot(own, process);
    }

    fn sweep_domain(&self, own: &Own) {
        let processes = 0..self.layout.geometry.processes;
        for process in processes.clone() {
            self.forget_writes(own, process);
        }
        let is_stranded = |word: HeaderWord| {
            !word.is(State::Free) && !word.is(State::Valid) && !word.is(State::Retired)
        };
        if self.release_where(own, is_stranded) > 0 {
            let chunks = self.sweep_orphans(own);
            self.stats.add(Event::ReclaimedChunks, chunks);
        }
        for process in processes {
            self.free_slot(own, process);
        }
    }

    fn forget_writes(&self, own: &Own, process: u32) {
        let at = self.layout.process(own.domain, process) + slot::WRITES;
        for entry in 0..WRITES_MAX {
            self.mem.store(at + 8 * u64::from(entry), 0);
        }
    }

    /// Releases the headers whose word is as asked for. Returns how many.
    fn release_where(&self, own: &Own, is_left: impl Fn(HeaderWord) -> bool) -> u64 {
        let mut released = 0;
        for header in 0..self.layout.headers() {
            let line_at = self.layout.header(own.domain, header);
            let word = HeaderWord(self.mem.load(line_at));
            if !is_left(word) {
                continue;
            }
            let line = self.line(line_at);
            if HeaderWord(line[0]) == word
                && let Some(chunks) = self.release(own, header, &line, |_| ())
            {
                released += 1;
                self.stats.add(Event::ReclaimedChunks, chunks);
            }
        }
        self.stats.add(Event::ReclaimedHeaders, released);
        released
    }

    fn free_slot(&self, own: &Own, process: u32) {
        let at = self.layout.process(own.domain, process) + slot::WORD;
        let word = ProcessWord(self.mem.load(at));
        let free = ProcessWord::new(Life::Free, word.incarnation());
        if word.is_live() && self.mem.cas(at, word.0, free.0).is_ok() {
            self.stats.add(Event::ReclaimedProcesses, 1);
        }
    }

    /// Frees chunks that were taken for a claim and never chained.
    pub(crate) fn give_back(&self, own: &Own, locals: &[u32], held: ChunkWord) {
        let freed = locals
            .iter()
            .map(|&local| i64::from(self.free_chunk(own, local, held)))
            .sum();
        self.count_free(own, freed);
    }

    /// Looks at every chunk word and frees the orphans: chunks whose header has let go. Corrects the count of free
    /// chunks on the way. Returns how many were freed.
    pub fn sweep_orphans(&self, own: &Own) -> u64 {
        self.mend_recency(own);
        let counted = self.free_chunks(own.domain);
        let (mut freed, mut free) = (0, 0);
        for local in 0..self.layout.geometry.domain_chunks {
            let at = self.layout.chunk_word(own.domain, local);
            let chunk = ChunkWord(self.mem.load(at));
            if chunk.is_free() {
                free += 1;
            } else if self.is_orphan(own, chunk) && self.free_chunk(own, local, chunk) {
                freed += 1;
            }
        }
        if !self.correct_free(own, counted, free + freed) {
            self.count_free(own, freed);
        }
        freed.cast_unsigned()
    }

    pub(crate) fn sweep_orphans_rarely(&self, own: &Own, owner: &mut Owner) -> bool {
        let now = (self.now_ms)();
        if now.saturating_sub(owner.swept_ms) < ORPHANS_MS {
            return false;
        }
        owner.swept_ms = now;
        self.sweep_orphans(own) > 0
    }

    /// True when the header a chunk is held for is free or claimed anew, hence neither valid nor retired in memory, and
    /// no live process writes to the chunk. A word that no version writes is an orphan too.
    fn is_orphan(&self, own: &Own, chunk: ChunkWord) -> bool {
        let Some(header) = chunk.header().filter(|&h| h < self.layout.headers()) else {
            return true;
        };
        let word = HeaderWord(self.mem.load(self.layout.header(own.domain, header)));
        self.mem.judge(Check::Orphan, !chunk.is_kept_by(word)) && !self.is_written(own, chunk)
    }

    /// True when a live process lists a write to this chunk's header and generation.
    pub(crate) fn is_written(&self, own: &Own, chunk: ChunkWord) -> bool {
        let written = (0..self.layout.geometry.processes).any(|process| {
            let at = self.layout.process(own.domain, process);
            ProcessWord(self.mem.load(at + slot::WORD)).is_live()
                && (0..WRITES_MAX).any(|i| {
                    write_holds(self.mem.load(at + slot::WRITES + 8 * u64::from(i)), chunk)
                })
        });
        !self.mem.judge(Check::Unwritten, !written)
    }

    /// Lists a write in this process's slot; the caller stores 0 there when done. `None` when all entries are taken.
    pub(crate) fn list_write(&self, own: &Own, place: Place) -> Option<u64> {
        let first = self.layout.process(own.domain, own.process) + slot::WRITES;
        let entry = write_entry(place.header, place.generation);
        (0..WRITES_MAX)
            .map(|i| first + 8 * u64::from(i))
            .find(|&at| self.mem.cas(at, 0, entry).is_ok())
    }
}
