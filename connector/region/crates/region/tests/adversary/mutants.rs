//! What the protocol needs, one thing at a time: every flush, fence, invalidate and check is left out alone, and some
//! trial that is clean with it goes wrong without it.
//!
//! A trial belongs to a column. With checksums on, none of the ordering steps is ever seen to matter, so these are left
//! out with checksums off; checksums, by themselves, in trials with late write-backs and damage; what only delays others,
//! in trials that want to see it at once. `row` is exhaustive: a new step or check without a row does not compile.

use crate::actor::Mutation;
use crate::scenario::{self, Fault, Faults};
use crate::stage::Wrong;
use crate::{crash, damage, epochs, fresh, rings};
use hymcache_region::memory::{Check, Step};

pub(crate) const CRCS: [Check; 3] = [Check::HeaderCrc, Check::TableCrc, Check::UnitCrc];

/// Seeds after which a mutant counts as not caught, in its own trial and in the other ones.
const OWN_SEEDS: u64 = 300_000;
const OTHER_SEEDS: u64 = 60;
/// Seeds of every trial with nothing left out.
const CLEAN_SEEDS: u64 = 300;
/// Seeds of trials in which chance plays a small part.
const FEW_SEEDS: u64 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    CrcOff,
    CrcOn,
    Late,
    Damage,
    Fresh,
}

const COLUMNS: [(Column, &str); 5] = [
    (Column::CrcOff, "CRC off"),
    (Column::CrcOn, "CRC on"),
    (Column::Late, "late write-back"),
    (Column::Damage, "damage"),
    (Column::Fresh, "freshness"),
];

enum Run {
    /// The random world with these faults.
    Random(Faults),
    /// A small play.
    Play(fn(&Mutation, u64) -> Wrong),
}

/// Something that is clean for every seed as long as nothing but `off` is left out.
pub(crate) struct Trial {
    name: &'static str,
    column: Column,
    off: &'static [Check],
    run: Run,
}

impl Trial {
    fn wrong(&self, seed: u64, mutation: &Mutation) -> Wrong {
        let mutation = mutation.and_blind(self.off);
        match self.run {
            Run::Random(faults) => scenario::run(seed, &mutation, faults).wrong,
            Run::Play(play) => play(&mutation, seed),
        }
    }

    /// The first seed that goes wrong.
    fn catches(&self, mutation: &Mutation, seeds: u64) -> Option<u64> {
        let few = matches!(self.run, Run::Play(_))
            && ![EYES.name, DEATHS.name, RINGS.name].contains(&self.name);
        (1..=if few { seeds.min(FEW_SEEDS) } else { seeds })
            .find(|&seed| !self.wrong(seed, mutation).is_empty())
    }
}

macro_rules! trials {
    ($($const:ident = $name:literal, $column:ident, $off:expr, $run:expr;)+) => {
        $(const $const: Trial = Trial { name: $name, column: Column::$column, off: $off, run: $run };)+
        const TRIALS: &[Trial] = &[$($const),+];
    };
}

trials! {
    HOSTS = "two hosts", CrcOff, &CRCS, Run::Random(&[]);
    SPLIT = "put in two processes", CrcOff, &CRCS, Run::Random(&[Fault::Split]);
    GUESSES = "guessed references", CrcOff, &CRCS, Run::Random(&[Fault::Guesses]);
    CRASHES = "crashes", CrcOff, &CRCS, Run::Random(&[Fault::Crashes]);
    SPLIT_CRASHES = "crashes of split puts", CrcOff, &CRCS, Run::Random(&[Fault::Split, Fault::Crashes]);
    DEATHS = "dead before the flush", CrcOff, &CRCS, Run::Play(crash::dead_before_the_flush);
    TAKEN = "domain taken over", CrcOff, &CRCS, Run::Play(epochs::taken_over);
    ZOMBIE = "writer of a former epoch", CrcOff, &CRCS, Run::Play(epochs::zombie);
    OUTLIVED = "reference outlived", CrcOff, &CRCS, Run::Play(epochs::outlived);
    ON = "two hosts, CRC on", CrcOn, &[], Run::Random(&[]);
    ON_CRASHES = "crashes, CRC on", CrcOn, &[], Run::Random(&[Fault::Split, Fault::Crashes]);
    LATE = "late write-backs", Late, &[], Run::Random(&[Fault::LateWriteBacks]);
    UNITS = "units", Damage, &[], Run::Play(damage::units);
    PAYLOAD = "payload", Damage, &[], Run::Play(damage::payload);
    OTHER_CHUNK = "chunk of another, unit CRC off", Damage, &[Check::UnitCrc], Run::Play(damage::other_chunk);
    SLOT = "table slot, CRC off", Damage, &CRCS, Run::Play(damage::first_slot);
    CHUNK = "chunk number, CRC off", Damage, &CRCS, Run::Play(damage::chunk);
    ENDLESS = "endless chain, CRC off", Damage, &CRCS, Run::Play(damage::endless);
    CHAIN = "own chain into another, CRC off", Damage, &CRCS, Run::Play(damage::chain_into_another);
    OUTSIDE = "own chain outside", Damage, &[], Run::Play(damage::chain_outside);
    FLICKER = "key that flickers", Damage, &[], Run::Play(damage::flickering_key);
    TAG = "same tag and set", Fresh, &[], Run::Play(damage::same_tag);
    STORED = "stored, then looked up", Fresh, &[], Run::Play(fresh::stored);
    REFERRED = "published, then read", Fresh, &[], Run::Play(fresh::referred);
    RETIRED = "retired, then looked up", Fresh, &[], Run::Play(fresh::retired);
    OWNED = "owned, then attached", Fresh, &[], Run::Play(fresh::owned);
    REFORMATTED = "formatted, then attached", Fresh, &[], Run::Play(fresh::reformatted);
    RINGS = "told, then polled", Fresh, &[], Run::Play(rings::told);
    TALLIED = "counted, then reported", Fresh, &[], Run::Play(rings::tallied);
    EYES = "attached during a format", Fresh, &[], Run::Play(epochs::formatted_under_eyes);
}

/// The one thing that is left out.
#[derive(Clone, Copy, Debug)]
enum LeftOut {
    Step(Step),
    Check(Check),
}

impl LeftOut {
    fn mutation(self) -> Mutation {
        let mut mutation = Mutation::default();
        match self {
            Self::Step(step) => _ = mutation.skip.insert(step),
            Self::Check(check) => _ = mutation.blind.insert(check),
        }
        mutation
    }
}

struct Row {
    test: &'static str,
    left_out: LeftOut,
    trial: &'static Trial,
}

macro_rules! rows {
    ($kind:ident, $rows:ident, $tests:ident; $($test:ident: $name:ident in $trial:ident;)+) => {
        const $rows: &[Row] = &[$(Row {
            test: stringify!($test),
            left_out: LeftOut::$kind($kind::$name),
            trial: &$trial,
        }),+];

        mod $tests {
            use super::*;

            // A step or check without a row does not compile.
            const _: fn($kind) = |left_out| match left_out { $($kind::$name => ()),+ };

            $(#[test]
            fn $test() {
                let mutation = LeftOut::$kind($kind::$name).mutation();
                let caught = $trial.catches(&mutation, OWN_SEEDS);
                assert!(
                    caught.is_some(),
                    "{} is left out and nothing goes wrong in {:?}: it is needless, or the model too kind",
                    stringify!($name),
                    $trial.name,
                );
            })+
        }
    };
}

rows! { Step, STEPS, step;
    a_writer_that_does_not_fence_its_payload_is_caught: PayloadFence in SPLIT;
    a_table_left_in_the_cache_is_caught: TableFlush in HOSTS;
    a_tag_left_in_the_cache_is_caught: TagFlush in STORED;
    a_commit_without_fence_is_caught: CommitFence in HOSTS;
    a_valid_header_left_in_the_cache_is_caught: ValidFlush in STORED;
    a_valid_header_without_fence_is_caught: ValidFence in STORED;
    a_retired_header_left_in_the_cache_is_caught: RetireFlush in RETIRED;
    a_retired_header_without_fence_is_caught: RetireFence in RETIRED;
    a_header_that_leaves_without_flush_is_caught: FreeFlush in HOSTS;
    a_header_that_leaves_without_fence_is_caught: FreeFence in HOSTS;
    an_heir_that_does_not_flush_again_is_caught: HeirFlush in DEATHS;
    an_heir_that_does_not_fence_is_caught: HeirFence in DEATHS;
    a_tag_looked_up_in_the_cache_is_caught: TagInvalidate in STORED;
    a_tag_looked_up_before_its_line_is_dropped_is_caught: TagFence in STORED;
    a_header_looked_up_in_the_cache_is_caught: ProbeInvalidate in STORED;
    a_header_looked_up_before_its_line_is_dropped_is_caught: ProbeFence in STORED;
    a_header_read_from_the_cache_is_caught: HeaderInvalidate in REFERRED;
    a_header_read_before_its_line_is_dropped_is_caught: HeaderFence in REFERRED;
    a_table_dropped_before_the_header_was_read_is_caught: TableFenceBefore in GUESSES;
    a_table_read_from_the_cache_is_caught: TableInvalidate in HOSTS;
    a_table_read_before_its_lines_are_dropped_is_caught: TableFence in HOSTS;
    a_payload_read_from_the_cache_is_caught: PayloadInvalidate in HOSTS;
    a_payload_read_before_its_lines_are_dropped_is_caught: CopyFence in HOSTS;
    a_later_batch_read_before_its_lines_are_dropped_is_caught: BatchFence in HOSTS;
    a_second_look_before_the_copy_is_caught: RecheckFenceBefore in HOSTS;
    a_second_look_into_the_cache_is_caught: RecheckInvalidate in HOSTS;
    a_second_look_before_its_line_is_dropped_is_caught: RecheckFence in HOSTS;
    a_superblock_read_from_the_cache_is_caught: SuperblockInvalidate in REFORMATTED;
    a_superblock_read_before_its_lines_are_dropped_is_caught: SuperblockFence in REFORMATTED;
    an_owner_left_in_the_cache_is_caught: SealedFlush in OWNED;
    an_owner_without_fence_is_caught: SealedFence in OWNED;
    an_owner_read_from_the_cache_is_caught: SealedInvalidate in OWNED;
    an_owner_read_before_its_line_is_dropped_is_caught: SealedLookFence in OWNED;
    a_new_owner_with_old_lines_is_caught: TakeoverInvalidate in TAKEN;
    a_new_owner_that_looks_before_they_are_dropped_is_caught: TakeoverFence in TAKEN;
    a_new_owner_that_keeps_the_empty_directory_to_itself_is_caught: TakeoverFlush in TAKEN;
    a_new_owner_without_fence_is_caught: TakeoverDone in TAKEN;
    a_format_that_does_not_say_so_first_is_caught: FormatBeginFlush in EYES;
    a_format_that_says_so_without_fence_is_caught: FormatBeginFence in EYES;
    a_superblock_half_in_the_cache_is_caught: FormatBodyFlush in EYES;
    a_superblock_without_fence_before_its_state_is_caught: FormatBodyFence in EYES;
    a_format_that_never_gets_ready_is_caught: FormatReadyFlush in REFORMATTED;
    a_format_that_is_ready_without_fence_is_caught: FormatReadyFence in REFORMATTED;
    a_count_left_in_the_cache_is_caught: FormatCountersFlush in REFORMATTED;
    a_ring_entry_left_in_the_cache_is_caught: RingFlush in RINGS;
    a_ring_entry_without_fence_is_caught: RingFence in RINGS;
    a_ring_dropped_before_the_last_look_is_over_is_caught: RingFenceBefore in RINGS;
    a_ring_read_from_the_cache_is_caught: RingInvalidate in RINGS;
    a_ring_read_before_its_lines_are_dropped_is_caught: RingLookFence in RINGS;
    a_tally_left_in_the_cache_is_caught: TallyFlush in TALLIED;
    a_tally_without_fence_is_caught: TallyFence in TALLIED;
    a_tally_read_from_the_cache_is_caught: TallyInvalidate in TALLIED;
    a_tally_read_before_its_line_is_dropped_is_caught: TallyLookFence in TALLIED;
}

rows! { Check, CHECKS, check;
    a_missing_header_checksum_is_caught: HeaderCrc in UNITS;
    a_missing_table_checksum_is_caught: TableCrc in OTHER_CHUNK;
    a_missing_unit_checksum_is_caught: UnitCrc in LATE;
    a_key_that_is_not_compared_is_caught: Key in TAG;
    a_key_that_is_compared_once_is_caught: SameKey in FLICKER;
    a_generation_that_is_not_compared_is_caught: Generation in OUTLIVED;
    an_epoch_that_is_not_compared_is_caught: Epoch in ZOMBIE;
    impossible_sizes_are_caught: HeaderBounds in ENDLESS;
    a_table_slot_outside_is_caught: SlotBounds in SLOT;
    a_chunk_outside_is_caught: ChunkBounds in CHUNK;
    an_own_table_slot_outside_is_caught: ChainBounds in OUTSIDE;
    a_table_slot_outside_on_release_is_caught: FreeBounds in OUTSIDE;
    a_chunk_of_another_is_caught: Held in CHAIN;
    a_missing_second_look_is_caught: Recheck in HOSTS;
    a_sweep_that_frees_live_chunks_is_caught: Orphan in CRASHES;
    a_sweep_that_ignores_writers_is_caught: Unwritten in SPLIT;
    a_commit_before_the_write_is_done_is_caught: Complete in SPLIT;
    a_missing_checksum_of_a_ring_entry_is_caught: RingCrc in RINGS;
}

#[test]
fn every_trial_is_clean_when_nothing_is_left_out() {
    for trial in TRIALS {
        if let Some(seed) = trial.catches(&Mutation::default(), CLEAN_SEEDS) {
            let wrong = trial.wrong(seed, &Mutation::default());
            panic!("{}: seed {seed}: {wrong:?}", trial.name);
        }
    }
}

/// The whole table: each row in each column, with the trial that catches it first. Takes minutes.
#[test]
#[ignore = "prints the table for people: make mutants"]
fn table() {
    let cell = |row: &Row, column: Column| {
        let mutation = row.left_out.mutation();
        let own = (row.trial.column == column).then_some(row.trial);
        let others = TRIALS.iter().filter(|trial| trial.column == column);
        let caught = own
            .and_then(|trial| trial.catches(&mutation, OWN_SEEDS))
            .or_else(|| {
                others
                    .filter_map(|trial| trial.catches(&mutation, OTHER_SEEDS))
                    .min()
            });
        caught.map_or_else(|| "-".into(), |seed| format!("seed {seed}"))
    };
    println!(
        "| left out | {} | trial |",
        COLUMNS.map(|c| c.1).join(" | ")
    );
    println!("|---|{}---|", "---|".repeat(COLUMNS.len()));
    let mut missed = Vec::new();
    for row in STEPS.iter().chain(CHECKS) {
        let cells = COLUMNS.map(|(column, _)| cell(row, column));
        if cells.iter().all(|cell| cell == "-") {
            missed.push(row.test);
        }
        let left_out = match row.left_out {
            LeftOut::Step(step) => format!("{step:?}"),
            LeftOut::Check(check) => format!("{check:?}"),
        };
        println!(
            "| {left_out} | {} | {} |",
            cells.join(" | "),
            row.trial.name
        );
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
