//! A real region, attached twice, whose bytes are changed at rest (`fuzz`) and under the feet of its users (`flips`).
//!
//! `HYMCACHE_FUZZ_BYTES` says how many bytes the fuzzer overwrites, `HYMCACHE_FUZZ_FROM` with which seed it goes on,
//! `HYMCACHE_FLIP_MS` how long bytes are flipped.

mod aimed;
mod bed;
mod change;
mod epochs;
mod flips;
mod fuzz;
mod neighbours;
mod owners;
mod stranded;

/// A setting of the run.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}
