//! A hole under the chunk words, met in the middle of a put: from then on the process sees zeros of its own there, so
//! every chunk looks free, while the payload is still everybody's. Nothing may be stored into it.

use crate::actor::{Adversary, Mutation};
use crate::scenario::{CHUNKS, content, digest, is_content, piece, shape};
use crate::stage::{Stage, find, put, read_at};
use hymcache_region::buffers::{Buffers, Piece};
use hymcache_region::core::{Core, Scratch};
use hymcache_region::memory::{Memory, Step};
use hymcache_region::stats::Refusal;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

const THEIRS: usize = 1;

/// Memory with a hole: private words, zero at first, in place of a range.
struct Holed {
    real: Adversary,
    hole: Range<u64>,
    private: RefCell<HashMap<u64, u64>>,
}

impl Holed {
    fn word(&self, at: u64) -> Option<u64> {
        let mut words = self.private.borrow_mut();
        self.hole
            .contains(&at)
            .then(|| *words.entry(at).or_insert(0))
    }

    fn change(&self, at: u64, change: impl FnOnce(u64) -> u64) -> Option<u64> {
        let old = self.word(at)?;
        self.private.borrow_mut().insert(at, change(old));
        Some(old)
    }
}

impl Memory for Holed {
    fn load(&self, at: u64) -> u64 {
        self.word(at).unwrap_or_else(|| self.real.load(at))
    }

    fn store(&self, at: u64, value: u64) {
        if self.change(at, |_| value).is_none() {
            self.real.store(at, value);
        }
    }

    fn cas(&self, at: u64, old: u64, new: u64) -> Result<u64, u64> {
        let found = self.change(at, |word| if word == old { new } else { word });
        match found {
            Some(found) if found == old => Ok(old),
            Some(found) => Err(found),
            None => self.real.cas(at, old, new),
        }
    }

    fn add(&self, at: u64, value: u64) -> u64 {
        let found = self.change(at, |word| word.wrapping_add(value));
        found.unwrap_or_else(|| self.real.add(at, value))
    }

    fn flush(&self, at: u64, len: u64, step: Step) {
        self.real.flush(at, len, step);
    }

    fn invalidate(&self, at: u64, len: u64, step: Step) {
        self.real.invalidate(at, len, step);
    }

    fn store_fence(&self, step: Step) {
        self.real.store_fence(step);
    }

    fn full_fence(&self, step: Step) {
        self.real.full_fence(step);
    }

    fn prefetch(&self, at: u64) {
        self.real.prefetch(at);
    }

    fn copy_in(&self, at: u64, from: Piece, crc: u32) -> Option<u32> {
        self.real.copy_in(at, from, crc)
    }

    fn copy_out(&self, at: u64, to: Piece, crc: u32, whole: u64) -> Option<u32> {
        self.real.copy_out(at, to, crc, whole)
    }

    fn crc(&self, crc: u32, bytes: &[u8]) -> u32 {
        self.real.crc(crc, bytes)
    }

    /// The handler puts the private words there and says that the region is lost.
    fn is_intact(&self) -> bool {
        self.private.borrow().is_empty()
    }
}

#[test]
fn a_put_that_meets_a_hole_under_the_chunk_words_stores_nothing_over_others() {
    let stage = Stage::new(&Mutation::default(), 1);
    let healthy = stage.join(0, 0, 0);
    assert!(put(&healthy, THEIRS, 1)); // two chunks of three
    let words = stage.layout.chunk_word(0, 0);
    let other = stage.join(0, 0, 1);
    let holed = Core::new(
        Holed {
            real: other.mem,
            hole: words..words + 8 * u64::from(CHUNKS),
            private: RefCell::default(),
        },
        other.layout,
        other.identity,
        other.own,
        other.now_ms,
    );
    let mut bytes = content(0, 1);
    let stored = holed.put(
        &digest(0),
        shape(0),
        Buffers::List(&piece(&mut bytes)),
        &mut Scratch::default(),
    );
    let read = read_at(&healthy, find(&healthy, THEIRS).expect("still there"));
    assert!(
        read.as_ref().is_ok_and(|bytes| is_content(THEIRS, bytes)),
        "{read:02x?}"
    );
    assert_eq!(stored, Err(Refusal::Lost));
}
