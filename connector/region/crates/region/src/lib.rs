//! The region of `HyMCache`: memory that several hosts map, with a directory of KV objects inside and no server beside it.
//!
//! | layer | modules | what it knows |
//! |---|---|---|
//! | format | [`layout`], [`superblock`], [`header`], [`words`], [`domain`] | where every byte lies and what it means |
//! | protocol | [`probe`], [`read`], [`view`], [`write`], [`evict`], [`sweep`], [`inspect`] over [`memory::Memory`] | order of loads, stores, flushes, fences |
//! | advice | [`ring`], [`touch`], [`hint`], [`news`] over the same | what one host tells the others; losing it costs time, never truth |
//! | policy | [`uses`], [`copies`], [`victims`], [`ghosts`], [`duel`] | which object goes next; hints alone |
//! | process | [`mapped`], [`os`], [`attach`], `lock_file`, [`region`] | files, mappings, locks, signals, threads |
//!
//! The protocol is generic over [`memory::Memory`]: the product runs it on [`mapped::Mapped`], the tests on models that
//! evict, delay, crash and interleave. `docs/region-format.md` describes the bytes.

pub mod advice;
pub mod attach;
pub mod buffers;
pub mod copies;
pub mod core;
pub mod digest;
pub mod domain;
pub mod duel;
pub mod error;
pub mod evict;
pub mod format;
pub mod ghosts;
mod halves;
pub mod header;
pub mod hint;
pub mod inspect;
pub mod layout;
pub mod lease;
pub mod lent;
mod lock_file;
pub mod mapped;
pub mod memory;
pub mod news;
pub mod os;
pub mod plan;
pub mod probe;
pub mod read;
pub mod region;
pub mod ring;
pub mod stats;
pub mod superblock;
pub mod sweep;
pub mod tally;
pub mod tiles;
pub mod touch;
pub mod uses;
pub mod victims;
pub mod view;
pub mod window;
pub mod words;
pub mod write;
