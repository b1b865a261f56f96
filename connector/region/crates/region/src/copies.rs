//! One key in several domains: hosts that store it at the same time do not see one another.
//!
//! Such copies are harmless, and all but one are a waste. The lowest domain's stays; a later one is the first that its
//! domain gives up. It lies at the old end of the objects used once, and uses do not move it as long as the original is
//! there: they count for the original.

use crate::core::{Core, Own, Place};
use crate::digest::Digest;
use crate::header::Header;
use crate::layout::WAYS;
use crate::memory::Memory;
use crate::probe::{Accept, tag};

impl<M: Memory> Core<M> {
    /// The valid object of the lowest domain below the own one that has the key of an own header. Costs what a lookup of
    /// one key costs in these domains; nothing in the lowest.
    pub(crate) fn original(&self, own: &Own, header: u32) -> Option<Place> {
        if own.domain == 0 {
            return None;
        }
        let at = self.layout.header(own.domain, header);
        let stored = Header::decode(&self.line(at));
        let tags = self.line(self.layout.tags(own.domain, header / WAYS));
        let key = Digest {
            a: stored.key_a,
            b: stored.key_b,
            c: stored.key_c,
            tag: tag(&tags, header % WAYS),
        };
        let mut found = [None];
        for domain in 0..own.domain {
            self.probe(domain, &[key], Accept::Valid, &mut found);
            if found[0].is_some() {
                break;
            }
        }
        found[0]
    }
}
