//! The figures as a table for people and as JSON for programs.

use crate::replay::Replayed;
use serde_json::{Value, json};

/// What the region may stay below the better of LRU and ARC.
const SLACK: f64 = 0.005;

/// One trace at one cache size.
pub(crate) struct Cell {
    pub(crate) trace: String,
    pub(crate) scans: bool,
    pub(crate) percent: usize,
    /// Objects that fit.
    pub(crate) size: usize,
    pub(crate) lru: f64,
    pub(crate) arc: f64,
    pub(crate) region: Replayed,
    /// Four domains, requests spread evenly.
    pub(crate) even: Replayed,
    /// Four domains, 70 % of the requests on one host.
    pub(crate) skewed: Replayed,
}

impl Cell {
    fn best(&self) -> f64 {
        self.lru.max(self.arc)
    }

    pub(crate) fn is_good(&self) -> bool {
        self.region.hit_rate >= self.best() - SLACK
    }

    fn json(&self) -> Value {
        let domains = |replayed: &Replayed| {
            json!({
                "hit_rate": replayed.hit_rate,
                "evictions": replayed.evictions,
                "conflict_evictions": replayed.conflicts,
                "puts": replayed.puts,
            })
        };
        json!({
            "trace": self.trace,
            "scans": self.scans,
            "percent": self.percent,
            "objects": self.size,
            "lru": self.lru,
            "arc": self.arc,
            "region": domains(&self.region),
            "floor": self.best() - SLACK,
            "good": self.is_good(),
            "four_domains_even": domains(&self.even),
            "four_domains_70_on_one": domains(&self.skewed),
        })
    }
}

/// Prints an array of cells.
pub(crate) fn print_json(cells: &[Cell]) -> serde_json::Result<()> {
    let cells: Vec<Value> = cells.iter().map(Cell::json).collect();
    println!("{}", serde_json::to_string_pretty(&cells)?);
    Ok(())
}

/// Prints a line per cell: share of blocks found before the first that is missing.
pub(crate) fn print_table(cells: &[Cell]) {
    println!("Hit rates, by cache size in % of the distinct blocks");
    println!(
        "{:14} {:5} {:>4} {:>7} | {:>7} {:>7} {:>7} {:>7}      | {:>9} {:>9}",
        "trace", "scans", "%", "objects", "LRU", "ARC", "region", "diff", "4 even", "4, 70 %"
    );
    for cell in cells {
        println!(
            "{:14} {:5} {:>4} {:>7} | {:>7.4} {:>7.4} {:>7.4} {:>+7.4} {:4} | {:>9.4} {:>9.4}",
            cell.trace,
            if cell.scans { "30 %" } else { "-" },
            cell.percent,
            cell.size,
            cell.lru,
            cell.arc,
            cell.region.hit_rate,
            cell.region.hit_rate - cell.best(),
            if cell.is_good() { "" } else { "LOW" },
            cell.even.hit_rate,
            cell.skewed.hit_rate,
        );
    }
    let good = cells.iter().filter(|cell| cell.is_good()).count();
    println!(
        "{good} of {} cells within {SLACK} of the better of LRU and ARC",
        cells.len()
    );
}
