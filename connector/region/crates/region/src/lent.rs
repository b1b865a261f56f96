//! A view of an object that keeps its region mapped, also when the region has ended in the meantime.

use crate::digest::Digest;
use crate::region::Live;
use crate::stats::Event;
use crate::view::Sight;
use std::sync::Arc;

/// An object where it lies.
pub struct Lent {
    live: Arc<Live>,
    sight: Sight,
}

impl Lent {
    /// Looks at the object under `key`; `None` is a miss, counted by its reason.
    pub fn new(live: &Arc<Live>, key: &Digest) -> Option<Self> {
        if !live.ready() {
            live.core().stats.add(Event::MissLost, 1);
            return None;
        }
        let sight = live.core().view(key).ok()?;
        live.lend();
        Some(Self {
            live: Arc::clone(live),
            sight,
        })
    }

    /// Addresses and lengths of its bytes, in order; mapped for reading at least, for as long as this lives.
    pub fn parts(&self) -> impl Iterator<Item = (*const u8, usize)> {
        let base = self.live.core().mem.mapping().base();
        let parts = self.sight.parts.iter();
        parts.map(move |&(at, len)| (base.wrapping_add(at as usize).cast_const(), len as usize))
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.sight.bytes()
    }

    /// True when all that was loaded from it so far are the object's bytes, as far as order goes.
    pub fn is_still(&self) -> bool {
        self.live.ready() && self.live.core().is_still(&self.sight)
    }

    /// True when its bytes have their checksums as well.
    pub fn is_sound(&self) -> bool {
        self.live.ready() && self.live.core().is_sound(&self.sight)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.live.take_back();
    }
}
