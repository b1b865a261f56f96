//! A model of several hosts that share memory without coherence between them: as unkind as the hardware may be.
//!
//! Every host has one write-back cache for all its processes. Between any two steps any cached line may be written back
//! or dropped, and any line fetched. Flushes and non-temporal stores stay pending, each on its own, until a fence of the
//! process that issued them or until the world carries them out. A flush may also turn out to have happened earlier:
//! nothing orders it after the loads before it but a full fence. Lines are lost and restored whole, never in part.

use std::collections::BTreeMap;

pub(crate) const WORDS: usize = 8;
pub(crate) const LINE: u64 = 64;

#[derive(Clone)]
struct Cached {
    words: [u64; WORDS],
    dirty: bool,
    fetched: u64,
}

/// What a process has issued and no fence has completed yet.
enum Pending {
    /// Bytes of one line on their way to memory past the caches.
    Store {
        line: u64,
        offset: usize,
        bytes: Vec<u8>,
    },
    /// A line on its way out of the host's cache.
    Flush { line: u64, keep: bool },
}

#[derive(Default)]
struct Process {
    host: usize,
    pending: Vec<Pending>,
    fenced: u64,
}

/// Small deterministic random numbers (xorshift64*): a seed names a run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 32) as usize * n) >> 32
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

pub(crate) struct World {
    memory: Vec<[u64; WORDS]>,
    caches: Vec<BTreeMap<u64, Cached>>,
    processes: Vec<Process>,
    now: u64,
    pub(crate) random: Random,
    /// Lines that late write-backs may hit, with what they held before. Empty: none happen.
    history: BTreeMap<u64, Vec<[u64; WORDS]>>,
    late: Vec<std::ops::Range<u64>>,
    pub(crate) steps: u64,
    /// Accesses that lay outside the region: damage that a check let through.
    pub(crate) strays: u64,
    /// The last step was a successful compare-and-swap: a good moment to die.
    pub(crate) tempting: bool,
    moods: Moods,
    /// Nothing happens on its own: dirty lines stay dirty, what is pending stays pending.
    pub(crate) calm: bool,
}

/// How often, in steps, the world does each thing on its own: some worlds are lazy, some restless.
struct Moods {
    evict: usize,
    fetch: usize,
    carry_out: usize,
    late: usize,
}

impl World {
    pub(crate) fn new(bytes: u64, hosts: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut mood = || [2, 8, 40, 300][random.below(4)];
        let moods = Moods {
            evict: mood(),
            fetch: mood(),
            carry_out: mood(),
            late: mood(),
        };
        Self {
            moods,
            memory: vec![[0; WORDS]; (bytes / LINE) as usize],
            caches: vec![BTreeMap::new(); hosts],
            processes: Vec::new(),
            now: 1,
            random,
            history: BTreeMap::new(),
            late: Vec::new(),
            steps: 0,
            strays: 0,
            tempting: false,
            calm: false,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.memory.len() as u64 * LINE
    }

    pub(crate) fn join(&mut self, host: usize) -> usize {
        self.processes.push(Process {
            host,
            ..Process::default()
        });
        self.processes.len() - 1
    }

    /// A word as memory has it, whatever the caches hold.
    pub(crate) fn in_memory(&self, at: u64) -> u64 {
        self.memory[(at / LINE) as usize][(at % LINE / 8) as usize]
    }

    /// A fault changes a word, in memory and in every cache that has it.
    pub(crate) fn damage(&mut self, at: u64, change: impl Fn(u64) -> u64) {
        let (line, word) = (at / LINE, (at % LINE / 8) as usize);
        let new = &mut self.memory[line as usize][word];
        *new = change(*new);
        for cached in self.caches.iter_mut().filter_map(|c| c.get_mut(&line)) {
            cached.words[word] = change(cached.words[word]);
        }
    }

    /// From now on, lines in these ranges may be overwritten by what they held earlier: a stale dirty line that a host
    /// writes back against all rules.
    pub(crate) fn inject_late_write_backs(&mut self, ranges: Vec<std::ops::Range<u64>>) {
        self.late = ranges;
    }

    fn set_memory(&mut self, line: u64, words: [u64; WORDS]) {
        let slot = &mut self.memory[line as usize];
        if *slot != words && self.late.iter().any(|range| range.contains(&(line * LINE))) {
            let past = self.history.entry(line).or_default();
            if past.len() < 8 {
                past.push(*slot);
            }
        }
        *slot = words;
    }

    fn cached(&mut self, host: usize, line: u64) -> &mut Cached {
        let (memory, now) = (&self.memory, self.now);
        self.caches[host].entry(line).or_insert_with(|| Cached {
            words: memory[line as usize],
            dirty: false,
            fetched: now,
        })
    }

    fn write_back(&mut self, host: usize, line: u64, keep: bool) {
        let Some(cached) = self.caches[host].get_mut(&line) else {
            return;
        };
        let (words, dirty) = (cached.words, cached.dirty);
        cached.dirty = false;
        if dirty {
            self.set_memory(line, words);
        }
        if !keep {
            self.caches[host].remove(&line);
        }
    }

    fn carry_out(&mut self, process: usize, index: usize) {
        let host = self.processes[process].host;
        match self.processes[process].pending.swap_remove(index) {
            Pending::Flush { line, keep } => self.write_back(host, line, keep),
            Pending::Store {
                line,
                offset,
                bytes,
            } => {
                self.write_back(host, line, false);
                let mut words = self.memory[line as usize];
                for (i, byte) in bytes.iter().enumerate() {
                    let at = offset + i;
                    let shift = 8 * (at % 8);
                    words[at / 8] = words[at / 8] & !(0xFF << shift) | u64::from(*byte) << shift;
                }
                self.set_memory(line, words);
            }
        }
    }

    /// A process sees its own non-temporal stores: before it touches such a line again they are carried out.
    fn settle_line(&mut self, process: usize, line: u64) {
        while let Some(index) = self.processes[process]
            .pending
            .iter()
            .position(|p| matches!(p, Pending::Store { line: l, .. } if *l == line))
        {
            self.carry_out(process, index);
        }
    }

    pub(crate) fn settle(&mut self, process: usize) {
        while !self.processes[process].pending.is_empty() {
            let index = self.random.below(self.processes[process].pending.len());
            self.carry_out(process, index);
        }
    }

    pub(crate) fn load(&mut self, process: usize, at: u64) -> u64 {
        let line = at / LINE;
        self.settle_line(process, line);
        let host = self.processes[process].host;
        self.cached(host, line).words[(at % LINE / 8) as usize]
    }

    /// Changes a word in the host's cache: what every store and atomic does.
    pub(crate) fn modify(
        &mut self,
        process: usize,
        at: u64,
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> u64 {
        let line = at / LINE;
        self.settle_line(process, line);
        let host = self.processes[process].host;
        let cached = self.cached(host, line);
        let word = &mut cached.words[(at % LINE / 8) as usize];
        let old = *word;
        if let Some(new) = change(old) {
            *word = new;
            cached.dirty = true;
        }
        old
    }

    pub(crate) fn store_past_caches(&mut self, process: usize, at: u64, bytes: &[u8]) {
        self.processes[process].pending.push(Pending::Store {
            line: at / LINE,
            offset: (at % LINE) as usize,
            bytes: bytes.to_vec(),
        });
    }

    /// Issues a flush of one line. `keep`: the writer's kind, which may leave the line in the cache, clean.
    pub(crate) fn flush(&mut self, process: usize, line: u64, keep: bool) {
        let p = &self.processes[process];
        let (host, fenced) = (p.host, p.fenced);
        // Nothing but a full fence orders a flush after earlier loads: it may have happened right after the last one,
        // and the line may have come back since.
        let came_back = self.caches[host]
            .get(&line)
            .is_some_and(|cached| cached.fetched > fenced && !cached.dirty);
        if came_back && self.random.one_in(2) {
            return;
        }
        let keep = keep && self.random.one_in(2);
        self.processes[process]
            .pending
            .push(Pending::Flush { line, keep });
    }

    pub(crate) fn full_fence(&mut self, process: usize) {
        self.settle(process);
        self.now += 1;
        self.processes[process].fenced = self.now;
        self.now += 1;
    }

    /// What the world does on its own between two steps.
    pub(crate) fn stir(&mut self) {
        self.steps += 1;
        self.now += 1;
        self.tempting = false;
        if self.calm {
            return;
        }
        if self.random.one_in(self.moods.evict) {
            self.evict_something();
        }
        if self.random.one_in(self.moods.fetch) {
            self.fetch_something();
        }
        if self.random.one_in(self.moods.carry_out) {
            let process = self.random.below(self.processes.len());
            let pending = self.processes[process].pending.len();
            if pending > 0 {
                let index = self.random.below(pending);
                self.carry_out(process, index);
            }
        }
        if !self.history.is_empty() && self.random.one_in(self.moods.late) {
            self.write_back_late();
        }
    }

    fn pick_cached(&mut self, host: usize) -> Option<u64> {
        let count = self.caches[host].len();
        if count == 0 {
            return None;
        }
        let index = self.random.below(count);
        self.caches[host].keys().nth(index).copied()
    }

    fn evict_something(&mut self) {
        let host = self.random.below(self.caches.len());
        if let Some(line) = self.pick_cached(host) {
            let keep = self.random.one_in(2);
            self.write_back(host, line, keep);
        }
    }

    /// Hosts fetch what other hosts use: that is where staleness begins.
    fn fetch_something(&mut self) {
        let from = self.random.below(self.caches.len());
        let host = self.random.below(self.caches.len());
        if let Some(line) = self.pick_cached(from) {
            self.cached(host, line);
        }
    }

    fn write_back_late(&mut self) {
        let index = self.random.below(self.history.len());
        let Some((&line, past)) = self.history.iter().nth(index) else {
            return;
        };
        let words = past[self.random.below(past.len())];
        self.memory[line as usize] = words;
    }
}
