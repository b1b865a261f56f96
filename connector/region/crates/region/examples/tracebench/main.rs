//! Hit rates of the region's eviction on request traces, beside LRU and ARC of the same run.
//!
//! ```text
//! cargo run --release --example tracebench -- [--data DIR] [--seed N] [--traces NAME,..] [--sizes PERCENT,..] [--uuid N] [--json]
//! ```
//! Each trace is replayed as it is and with 30 % of one-shot scans mixed in, at four cache sizes: shares of the trace's
//! distinct blocks. Fails when the region, as one domain, stays more than half a point below the better of LRU and ARC.
//! The same room as four domains of four hosts is reported, not judged.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts of a trace are far below 2^52"
)]

mod reference;
mod replay;
mod report;
mod trace;

use replay::{Spread, replay};
use report::{Cell, print_json, print_table};
use std::error::Error;
use std::path::PathBuf;

const SIZES_PERCENT: [usize; 4] = [5, 10, 20, 40];
const EVEN: Spread = Spread {
    hosts: 4,
    first_percent: 25,
};
const SKEWED: Spread = Spread {
    hosts: 4,
    first_percent: 70,
};

struct Options {
    data: PathBuf,
    seed: u64,
    traces: Vec<String>,
    sizes: Vec<usize>,
    /// Byte of the regions' uuid: with another one, keys lie in other sets.
    uuid: u8,
    json: bool,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut given = pico_args::Arguments::from_env();
    let data: Option<PathBuf> = given.opt_value_from_str("--data")?;
    let traces: Option<String> = given.opt_value_from_str("--traces")?;
    let traces = traces.unwrap_or_else(|| "conversation,synthetic".into());
    let sizes: Option<String> = given.opt_value_from_str("--sizes")?;
    let sizes = match sizes {
        Some(sizes) => sizes.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => SIZES_PERCENT.to_vec(),
    };
    let options = Options {
        data: data.unwrap_or_else(|| "../shared/data/traces/mooncake".into()),
        seed: given.opt_value_from_str("--seed")?.unwrap_or(1),
        traces: traces.split(',').map(str::to_owned).collect(),
        sizes,
        uuid: given.opt_value_from_str("--uuid")?.unwrap_or(7),
        json: given.contains("--json"),
    };
    let rest = given.finish();
    if rest.is_empty() {
        return Ok(options);
    }
    Err(format!("unknown arguments: {rest:?}").into())
}

fn cells(options: &Options) -> Result<Vec<Cell>, Box<dyn Error>> {
    let mut cells = Vec::new();
    for name in &options.traces {
        let plain = trace::load(&options.data.join(format!("{name}_trace.jsonl")))?;
        let footprint = trace::footprint(&plain);
        for scans in [false, true] {
            let mixed = scans.then(|| trace::with_scans(&plain, options.seed));
            let trace = mixed.as_ref().unwrap_or(&plain);
            let on = |size: usize, spread: Spread| {
                replay(trace, size, spread, options.seed, options.uuid)
            };
            for &percent in &options.sizes {
                let size = footprint * percent / 100;
                eprint!("\r\x1b[K{name}, scans: {scans}, {percent} %");
                cells.push(Cell {
                    trace: name.clone(),
                    scans,
                    percent,
                    size,
                    lru: reference::lru(trace, size),
                    arc: reference::arc(trace, size),
                    region: on(size, Spread::ALONE)?,
                    even: on(size, EVEN)?,
                    skewed: on(size, SKEWED)?,
                });
            }
        }
    }
    eprint!("\r\x1b[K");
    Ok(cells)
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    if !options.data.is_dir() {
        eprintln!(
            "traces: skipped, as there is no {}; put Mooncake's *_trace.jsonl there, or say --data DIR",
            options.data.display()
        );
        return Ok(());
    }
    let cells = cells(&options)?;
    if options.json {
        print_json(&cells)?;
    } else {
        print_table(&cells);
    }
    let below = cells.iter().filter(|cell| !cell.is_good()).count();
    if below > 0 {
        return Err(format!("{below} of {} cells are below their floor", cells.len()).into());
    }
    Ok(())
}
