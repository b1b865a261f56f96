//! Request traces: chains of block numbers, one chain per request.

use serde::Deserialize;
use std::error::Error;
use std::path::Path;

/// Block numbers of one prompt, from its head.
pub(crate) type Chain = Vec<u64>;

/// Part of all references that come from scans, where scans are mixed in.
const SCAN_SHARE: f64 = 0.3;
/// Blocks of scans have numbers from here on: no trace has so many.
const FIRST_SCANNED: u64 = 1 << 40;

#[derive(Deserialize)]
struct Request {
    hash_ids: Chain,
}

/// Reads a trace in Mooncake's form: a JSON object per line, of which `hash_ids` counts.
pub(crate) fn load(path: &Path) -> Result<Vec<Chain>, Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let chains = text.lines().map(|line| {
        let request: Request = serde_json::from_str(line)?;
        Ok(request.hash_ids)
    });
    chains.collect()
}

/// Distinct blocks.
pub(crate) fn footprint(trace: &[Chain]) -> usize {
    let mut blocks: Vec<u64> = trace.iter().flatten().copied().collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks.len()
}

/// Small reproducible random numbers (xorshift64*, Vigna 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((high as usize) * n) >> 32
    }
}

/// The trace with prompts mixed in that nobody asks for again, as long as prompts of the trace are.
pub(crate) fn with_scans(trace: &[Chain], seed: u64) -> Vec<Chain> {
    let mut random = Random::new(seed);
    let (mut blocks, mut scanned) = (0_u64, 0_u64);
    let mut mixed = Vec::with_capacity(trace.len() * 3 / 2);
    for chain in trace {
        mixed.push(chain.clone());
        blocks += chain.len() as u64;
        while (scanned as f64) < SCAN_SHARE / (1.0 - SCAN_SHARE) * blocks as f64 {
            let len = trace[random.below(trace.len())].len() as u64;
            let first = FIRST_SCANNED + scanned;
            mixed.push((first..first + len).collect());
            scanned += len;
        }
    }
    mixed
}
