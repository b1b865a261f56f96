//! The packed 64-bit words that processes of one host change by compare-and-swap, bit by bit.
//!
//! | word | bits, low to high | who changes it |
//! |---|---|---|
//! | header | state 4, owner 12, generation 48 | processes of the domain's host; read by every host |
//! | chunk | header 28, generation 34, state 2 | processes of the domain's host |
//! | process | state 2, incarnation 62 | holder of the slot's lock byte |
//! | write | header 28, generation 36 | the process that owns the slot |
//! | progress | generation 32, sections done 16, sections failed 16 | writers of that header |
//! | recency | tick 48, class 16 | any process of the host |
//! | quarantine | generation 27, header 28, domain 8, present 1 | any process of the host |
//! | free chunks | count 40 (signed), changes 24 | any process of the host |
//!
//! # Header word
//! ```text
//! Free,g -> Writing,g+1 -> Valid,g+1 -> Retired,g+1 -> Leaving,g+1 -> Free,g+1
//!   claim             commit       evict          release
//! ```
//! `Writing` also goes to `Leaving` (abort, or a sweep after the owner's death), and so does `Valid` (a damaged object, a
//! full set). A commit takes `Writing` to `Leaving` before it stores a word, then to `Valid`: so it goes on in no line that
//! was given up meanwhile. `owner` is the process slot while `Writing` or `Leaving`, else 0: these two states are exclusive, only
//! their owner stores to the rest of the line, to the tag, and to the table slots of the chunks it holds. If the owner
//! dies, a sweep takes `Leaving` over and goes on. The generation rises with every claim and never falls, so a
//! compare-and-swap that was decided on before the word's last claim fails.
//!
//! # Chunk word
//! `Free -> Held(h,g)` when the writer of header h in generation g takes the chunk, `Held(h,g) -> Free` by the owner of
//! `Leaving,g` or, once the chunk is an orphan, by anyone. There is no other state: **a held chunk is alive exactly while
//! header h is in generation g and not `Free`**. A process that dies between any two steps leaves orphans, and an orphan
//! is found by looking. Freeing needs two things first: header h is neither valid nor retired *in memory* (whoever owns
//! it while `Leaving` flushes its line before it becomes `Free`), and no live process lists a write of (h,g).

use crate::layout::LINE;

const STATE_BITS: u32 = 4;
const OWNER_BITS: u32 = 12;
const HEADER_BITS: u32 = 28;
const HEADER_MASK: u64 = (1 << HEADER_BITS) - 1;
const GENERATION_BITS: u32 = 48;
/// Generations stop here: a header that reaches it is never claimed again.
pub const GENERATION_MAX: u64 = (1 << GENERATION_BITS) - 1;

const _: () = assert!(STATE_BITS + OWNER_BITS + GENERATION_BITS == 64);
const _: () = assert!(LINE == 64);

/// State of a header line. Numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Names nothing; may be claimed.
    Free = 0,
    /// Claimed by a process that fills it.
    Writing = 1,
    /// An object that lookups find.
    Valid = 2,
    /// An object that lookups miss and earlier finders may still read.
    Retired = 3,
    /// No object; its owner gives the chunks back, or is about to publish one.
    Leaving = 4,
}

/// First word of a header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderWord(pub u64);

impl HeaderWord {
    /// Packs the three fields.
    pub const fn new(state: State, owner: u32, generation: u64) -> Self {
        debug_assert!(owner < 1 << OWNER_BITS && generation <= GENERATION_MAX);
        Self(state as u64 | (owner as u64) << STATE_BITS | generation << (STATE_BITS + OWNER_BITS))
    }

    /// The state, or `None` for a number that no version wrote.
    pub const fn state(self) -> Option<State> {
        match self.0 & 15 {
            0 => Some(State::Free),
            1 => Some(State::Writing),
            2 => Some(State::Valid),
            3 => Some(State::Retired),
            4 => Some(State::Leaving),
            _ => None,
        }
    }

    /// True in this state.
    pub const fn is(self, state: State) -> bool {
        self.0 & 15 == state as u64
    }

    /// Process slot of the owner while `Writing` or `Leaving`.
    pub const fn owner(self) -> u32 {
        (self.0 >> STATE_BITS) as u32 & ((1 << OWNER_BITS) - 1)
    }

    /// Generation: rises with every claim of this line.
    pub const fn generation(self) -> u64 {
        self.0 >> (STATE_BITS + OWNER_BITS)
    }

    /// The same generation in another state without an owner.
    #[must_use]
    pub const fn to(self, state: State) -> Self {
        Self::new(state, 0, self.generation())
    }

    /// What of this word a checksum covers: the generation.
    pub const fn stable(self) -> u64 {
        self.generation() << (STATE_BITS + OWNER_BITS)
    }
}

/// Word of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkWord(pub u64);

impl ChunkWord {
    /// Nobody's.
    pub const FREE: Self = Self(0);
    const HELD: u64 = 1 << 62;
    const GENERATION_MASK: u64 = (1 << 34) - 1;

    /// Held for header `header` in `generation`.
    pub const fn held(header: u32, generation: u64) -> Self {
        debug_assert!(header as u64 <= HEADER_MASK);
        Self(header as u64 | (generation & Self::GENERATION_MASK) << HEADER_BITS | Self::HELD)
    }

    /// True when free.
    pub const fn is_free(self) -> bool {
        self.0 == 0
    }

    /// The header that holds it, if the word is one this version writes.
    pub const fn header(self) -> Option<u32> {
        if self.0 & (3 << 62) == Self::HELD {
            Some((self.0 & HEADER_MASK) as u32)
        } else {
            None
        }
    }

    /// True when header word `word` (of the header this chunk names) keeps the chunk alive.
    pub const fn is_kept_by(self, word: HeaderWord) -> bool {
        let same = (self.0 >> HEADER_BITS) & Self::GENERATION_MASK
            == word.generation() & Self::GENERATION_MASK;
        same && !word.is(State::Free)
    }
}

/// State of a process slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Nobody's.
    Free = 0,
    /// A process holds the lock byte, or died holding it.
    Live = 1,
}

/// First word of a process slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessWord(pub u64);

impl ProcessWord {
    /// Packs life and incarnation.
    pub const fn new(life: Life, incarnation: u64) -> Self {
        Self(life as u64 | incarnation << 2)
    }

    /// True when taken.
    pub const fn is_live(self) -> bool {
        self.0 & 3 == Life::Live as u64
    }

    /// Rises with every process that takes the slot.
    pub const fn incarnation(self) -> u64 {
        self.0 >> 2
    }
}

/// A write in progress that a process slot lists; 0 is no entry.
pub const fn write_entry(header: u32, generation: u64) -> u64 {
    // A generation is at least 1 once claimed, and 36 bits of it are never all 0 twice in a region's life.
    header as u64 | generation << HEADER_BITS
}

/// True when chunk word `chunk` belongs to the write `entry`.
pub const fn write_holds(entry: u64, chunk: ChunkWord) -> bool {
    entry != 0
        && entry & HEADER_MASK == chunk.0 & HEADER_MASK
        && (entry >> HEADER_BITS) & ChunkWord::GENERATION_MASK
            == (chunk.0 >> HEADER_BITS) & ChunkWord::GENERATION_MASK
}

/// Progress of a write by sections: which are stored, which failed, in which generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress(pub u64);

impl Progress {
    /// Nothing stored yet.
    pub const fn start(generation: u64) -> Self {
        Self(generation & 0xFFFF_FFFF)
    }

    /// True when the word speaks of this generation, and is no lease: that has the top bit.
    pub const fn is_of(self, generation: u64) -> bool {
        self.0 >> 63 == 0 && self.0 & 0xFFFF_FFFF == generation & 0xFFFF_FFFF
    }

    /// The word with one more section stored, or failed.
    #[must_use]
    pub const fn with(self, section: u32, stored: bool) -> Self {
        Self(self.0 | 1 << (section + if stored { 32 } else { 48 }))
    }

    /// True when all `sections` are stored and none failed.
    pub const fn is_complete(self, sections: u32) -> bool {
        sections < 16 && self.0 >> 32 == (1 << sections) - 1
    }
}

/// What a recency word says about its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Never used, or released.
    None = 0,
    /// Live: tick of its last use.
    Live = 1,
    /// Retired: tick of its retirement.
    Retired = 2,
    /// Live, and used again since it was stored: tick of its last use.
    Frequent = 3,
    /// Being written, then [`Class::Live`]: tick of its reservation.
    Claimed = 4,
    /// Being written, then [`Class::Frequent`], as it was evicted not long ago: tick of its reservation.
    Recalled = 5,
}

/// The two lists that live objects are on; a list is all objects whose word says so, its order that of their ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Used once.
    Recent = 0,
    /// Used again.
    Frequent = 1,
}

impl List {
    /// Class of a live object on this list.
    pub const fn class(self) -> Class {
        match self {
            Self::Recent => Class::Live,
            Self::Frequent => Class::Frequent,
        }
    }
}

/// Recency of a header: a hint for eviction, never trusted for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recency(pub u64);

impl Recency {
    /// Ticks are below this.
    pub const TICK_MASK: u64 = (1 << 48) - 1;
    /// A live object that a lower domain has too, or one that damage made old: the oldest of those used once.
    pub const COPY: Self = Self::new(Class::Live, 0);

    /// Packs class and tick.
    pub const fn new(class: Class, tick: u64) -> Self {
        Self((class as u64) << 48 | tick & Self::TICK_MASK)
    }

    /// True for this class.
    pub const fn is(self, class: Class) -> bool {
        self.0 >> 48 == class as u64
    }

    /// The tick.
    pub const fn tick(self) -> u64 {
        self.0 & Self::TICK_MASK
    }

    /// The list a live object is on; a class that no version writes is damage and counts as used once.
    pub const fn list(self) -> Option<List> {
        const LIVE: u64 = Class::Live as u64;
        const FREQUENT: u64 = Class::Frequent as u64;
        match self.0 >> 48 {
            FREQUENT => Some(List::Frequent),
            LIVE | 6.. => Some(List::Recent),
            _ => None,
        }
    }
}

/// How many chunks are free, about, and how often that changed: so that a count that was taken while it changed is not
/// stored over the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeChunks(pub u64);

impl FreeChunks {
    const CHANGES_AT: u32 = 40;

    /// This many, never changed.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// What to add to the word for `count` more; one change.
    pub const fn change(count: i64) -> u64 {
        (1_u64 << Self::CHANGES_AT).wrapping_add(count.cast_unsigned())
    }

    /// The count; below 0 while chunks that were not there were about to be taken.
    pub const fn count(self) -> i64 {
        (self.0 << (64 - Self::CHANGES_AT)).cast_signed() >> (64 - Self::CHANGES_AT)
    }

    /// The same after one more change, with this count.
    #[must_use]
    pub const fn corrected(self, count: i64) -> Self {
        Self(self.0.wrapping_add(Self::change(count - self.count())))
    }
}

/// Entry of the quarantine set: an object that failed its checks while its header stood still.
pub const fn quarantine_entry(domain: u32, header: u32, generation: u64) -> u64 {
    1 << 63 | (domain as u64) << 55 | (header as u64) << 27 | generation & ((1 << 27) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn header_word_keeps_its_fields(owner in 0_u32..4096, generation in 0..=GENERATION_MAX, state in 0_usize..5) {
            let state = [State::Free, State::Writing, State::Valid, State::Retired, State::Leaving][state];
            let word = HeaderWord::new(state, owner, generation);
            prop_assert_eq!((word.state(), word.owner(), word.generation()), (Some(state), owner, generation));
            prop_assert!(word.is(state));
            prop_assert_eq!(word.to(State::Retired), HeaderWord::new(State::Retired, 0, generation));
            prop_assert_eq!(word.stable(), word.to(State::Retired).stable());
        }

        #[test]
        fn a_chunk_is_kept_by_its_own_generation_alone(
            header in 0_u32..1 << 28, generation in 1..GENERATION_MAX, other in 1..GENERATION_MAX,
        ) {
            let chunk = ChunkWord::held(header, generation);
            prop_assert_eq!(chunk.header(), Some(header));
            prop_assert!(!chunk.is_free());
            for state in [State::Writing, State::Valid, State::Retired, State::Leaving] {
                prop_assert!(chunk.is_kept_by(HeaderWord::new(state, 0, generation)));
                let same = other & ((1 << 34) - 1) == generation & ((1 << 34) - 1);
                prop_assert_eq!(chunk.is_kept_by(HeaderWord::new(state, 0, other)), same);
            }
            prop_assert!(!chunk.is_kept_by(HeaderWord::new(State::Free, 0, generation)));
            prop_assert!(write_holds(write_entry(header, generation), chunk));
            prop_assert!(!write_holds(write_entry(header ^ 1, generation), chunk));
            prop_assert!(!write_holds(write_entry(header, generation + 1), chunk));
            prop_assert!(!write_holds(0, chunk));
        }

        #[test]
        fn a_count_of_free_chunks_survives_every_change(
            start in 0..u64::from(u32::MAX), changes in prop::collection::vec(-(1_i64 << 32)..1 << 32, 0..40),
            bits: u64, found in -(1_i64 << 32)..1 << 32,
        ) {
            let mut word = FreeChunks::new(start);
            let mut count = start.cast_signed();
            for change in changes {
                let next = FreeChunks(word.0.wrapping_add(FreeChunks::change(change)));
                prop_assert_ne!(next, word);
                (word, count) = (next, count + change);
                prop_assert_eq!(word.count(), count);
            }
            let damaged = FreeChunks(bits);
            prop_assert_eq!(damaged.corrected(found).count(), found);
            prop_assert_ne!(damaged.corrected(found), damaged);
        }

        #[test]
        fn any_bits_are_read_without_panic(bits: u64) {
            let _ = (HeaderWord(bits).state(), HeaderWord(bits).owner(), ChunkWord(bits).header());
            let _ = (ProcessWord(bits).incarnation(), Progress(bits).is_complete(15), Recency(bits).tick());
        }
    }

    #[test]
    fn progress_is_complete_when_every_section_is_stored_and_none_failed() {
        let start = Progress::start(7);
        assert!(!start.is_complete(2));
        assert!(!start.with(0, true).is_complete(2));
        assert!(start.with(0, true).with(1, true).is_complete(2));
        assert!(
            !start
                .with(0, true)
                .with(1, true)
                .with(1, false)
                .is_complete(2)
        );
        assert!(start.with(0, true).is_of(7) && !start.is_of(8));
    }

    #[test]
    fn a_quarantined_entry_is_never_the_empty_word() {
        assert_ne!(quarantine_entry(0, 0, 0), 0);
        assert_ne!(quarantine_entry(1, 2, 3), quarantine_entry(1, 2, 4));
        assert_ne!(quarantine_entry(1, 2, 3), quarantine_entry(2, 2, 3));
    }
}
