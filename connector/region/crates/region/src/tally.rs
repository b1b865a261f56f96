//! How often a domain's host found what it looked for: counters that anyone who maps the region can read.
//!
//! Lookups count in their process; a janitor adds what is new to the domain. A process that is killed takes the last
//! tenth of a second with it.

use crate::core::{Core, Own};
use crate::layout::{Counter, LINE};
use crate::memory::{Memory, Step};

impl<M: Memory> Core<M> {
    /// Adds this process's lookups since the last call to the counters of its domain.
    pub fn tally(&self, own: &Own) {
        let counters = [Counter::Hits, Counter::Misses];
        let mut told = false;
        for (counter, n) in counters.into_iter().zip(self.stats.lookups_since()) {
            if n > 0 && self.mem.is_intact() {
                let at = self.layout.counter(own.domain, counter);
                self.mem.add(at, n);
                self.mem.flush(at, LINE, Step::TallyFlush);
                told = true;
            }
        }
        if told {
            self.mem.store_fence(Step::TallyFence);
        }
    }

    /// A counter of a domain, from memory where another host writes it.
    pub fn tallied(&self, domain: u32, counter: Counter) -> u64 {
        if domain >= self.layout.geometry.domains || !self.mem.is_intact() {
            return 0;
        }
        let at = self.layout.counter(domain, counter);
        if self.is_foreign(domain) {
            self.mem.invalidate(at, LINE, Step::TallyInvalidate);
            self.mem.full_fence(Step::TallyLookFence);
        }
        self.mem.load(at)
    }
}
