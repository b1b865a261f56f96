//! What a process tells the others and hears from them, as calls on an attached region.

use crate::core::Place;
use crate::digest::Digest;
use crate::hint::{Hint, Terms};
use crate::news::News;
use crate::region::Live;
use crate::ring::Cursor;

impl Live {
    /// Tells that `objects` will be read in this order. See [`crate::core::Core::prefetch`].
    pub fn prefetch(&self, objects: &[Digest], terms: Terms) -> usize {
        if self.ready() {
            self.core().prefetch(objects, terms)
        } else {
            0
        }
    }

    /// Tells that a request will read nothing more.
    pub fn withdraw(&self, request: u64) {
        if self.ready() {
            self.core().withdraw(request);
        }
    }

    /// Keeps an own object. See [`crate::core::Core::lease`].
    pub fn lease(&self, place: Place, seconds: u32) -> bool {
        self.ready() && self.core().is_place(place) && self.core().lease(place, seconds)
    }

    /// Gives one lease back.
    pub fn release_lease(&self, place: Place) {
        if self.ready() {
            self.core().release_lease(place);
        }
    }

    /// Reads hints of every domain from `cursors` on (one per domain), at most `limit`. Hints past their deadline are
    /// passed over.
    pub fn hints(
        &self,
        cursors: &mut [Cursor],
        limit: usize,
        mut visit: impl FnMut(u32, u64, &Hint),
    ) {
        let core = self.core();
        let now_ms = (core.now_ms)();
        let mut left = limit;
        for (domain, cursor) in (0..core.layout.geometry.domains).zip(cursors) {
            if !self.ready() {
                return;
            }
            core.hints(domain, cursor, left, |sequence, hint| {
                left -= 1;
                if hint.object.is_none() || hint.terms.deadline_ms >= now_ms {
                    visit(domain, sequence, hint);
                }
            });
        }
    }

    /// Reads what left any domain from `cursors` on (one per domain), at most `limit`.
    pub fn evicted(&self, cursors: &mut [Cursor], limit: usize, mut visit: impl FnMut(u64, &News)) {
        let core = self.core();
        let mut left = limit;
        for (domain, cursor) in (0..core.layout.geometry.domains).zip(cursors) {
            if !self.ready() {
                return;
            }
            core.news(domain, cursor, left, |sequence, news| {
                left -= 1;
                visit(sequence, news);
            });
        }
    }
}
