//! Copy kernels against `memcpy` of the same buffers in the same process.
//!
//! ```text
//! cargo run --release --example copybench -- [--rounds N] [--sizes KIB,KIB,..] [--page KIB] [--only put,get,..] [--survey] [--guess] [--cpu-clock] [--floors] [--slow TIMES] [--json]
//! ```
//! `--floors` measures again what stays below a promised floor (see `repeat.rs`) and fails if it still does.
//! `--cpu-clock` compares CPU time instead of elapsed time: for machines busy with other work.
//! `--slow` makes the chosen kernel copy every object that many times, to see that the floors notice.
//! Exit status: 0, 1 for wrong bytes or bad arguments, 3 for a floor that was missed in every repetition.
//!
//! Each row: a short survey of every kernel finds the best bare copy and the best kernel; then `memcpy`, that bare
//! copy, the calibrated choice and the best kernel take turns for the figures. No throughput is printed for anything
//! that gave one wrong byte or CRC. Before the rows stands the calibration's table: every kernel against the expected
//! one, on the same memory, with the chosen ones marked.

mod contest;
mod memory;
mod pair;
mod plan;
mod repeat;
mod report;
mod work;

use contest::{Contestant, fastest, fresh_rounds, paired_rounds};
use hymcache_copy::{Choice, Measured, bare, calibrate, kernels, survey};
use pair::Pair;
use plan::{Chosen, Plan, Verdict};
use report::Row;
use std::error::Error;
use std::process::ExitCode;
use work::{Direction, Sides};

/// Rounds in which every kernel runs, to find those worth the full count.
const SURVEY_ROUNDS: usize = 5;
/// Exit status of a run whose bytes were right and whose speed was not.
const BELOW_FLOOR: u8 = 3;
/// What everything is compared with.
const BASELINE: &str = "memcpy";

/// What the ratios compare.
#[derive(PartialEq, Eq)]
enum Clock {
    Elapsed,
    Cpu,
}

/// What makes the run fail.
#[derive(PartialEq, Eq)]
enum Gate {
    /// A wrong byte or CRC.
    Bytes,
    /// That, or a row below its floor.
    Floors,
}

struct Options {
    rounds: usize,
    sizes_kib: Vec<usize>,
    page_kib: usize,
    only: Vec<String>,
    survey: bool,
    guess: bool,
    clock: Clock,
    gate: Gate,
    slow_times: usize,
    json: bool,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut given = pico_args::Arguments::from_env();
    let list =
        |text: Option<String>| text.map(|t| t.split(',').map(str::to_owned).collect::<Vec<_>>());
    let sizes = list(given.opt_value_from_str("--sizes")?);
    let options = Options {
        rounds: given.opt_value_from_str("--rounds")?.unwrap_or(15),
        sizes_kib: match sizes {
            Some(sizes) => sizes.iter().map(|s| s.parse()).collect::<Result<_, _>>()?,
            None => vec![64, 256, 1024, 4096, 16384, 32768],
        },
        page_kib: given.opt_value_from_str("--page")?.unwrap_or(32),
        only: list(given.opt_value_from_str("--only")?).unwrap_or_default(),
        survey: given.contains("--survey"),
        guess: given.contains("--guess"),
        clock: if given.contains("--cpu-clock") {
            Clock::Cpu
        } else {
            Clock::Elapsed
        },
        gate: if given.contains("--floors") {
            Gate::Floors
        } else {
            Gate::Bytes
        },
        slow_times: given.opt_value_from_str("--slow")?.unwrap_or(1),
        json: given.contains("--json"),
    };
    let rest = given.finish();
    if rest.is_empty() {
        Ok(options)
    } else {
        Err(format!("unknown argument {rest:?}; see the head of main.rs").into())
    }
}

fn everyone(direction: Direction) -> Vec<Contestant<'static>> {
    let mut all: Vec<Contestant> = bare::copies().into_iter().map(Contestant::bare).collect();
    for kernel in kernels() {
        all.push(Contestant::kernel(kernel, true, direction));
        if !direction.is_put() {
            all.push(Contestant::kernel(kernel, false, direction));
        }
    }
    all
}

fn measure(
    plan: &Plan,
    choice: Choice,
    sides: &Sides,
    options: &Options,
    rounds: usize,
) -> Result<Row, Box<dyn Error>> {
    let objects = sides.objects(plan.direction, plan.object_bytes, plan.page_bytes);
    let mut survey = everyone(plan.direction);
    paired_rounds(&mut survey, &objects, SURVEY_ROUNDS);
    let by_cpu = options.clock == Clock::Cpu && plan.chosen != Chosen::TwoThreads;
    if by_cpu {
        survey.iter_mut().for_each(Contestant::count_cpu_time);
    }
    let (best_bare, best_kernel) = (fastest(&survey, false), fastest(&survey, true));
    let pair = (plan.chosen == Chosen::TwoThreads).then(Pair::new);
    let mut finalists: Vec<Contestant> = everyone(plan.direction)
        .into_iter()
        .filter(|c| c.name == BASELINE || c.name == best_bare || c.name == best_kernel)
        .collect();
    let chosen = match (&pair, plan.chosen) {
        (Some(pair), _) => Contestant::pair(choice, pair, plan.direction),
        (None, Chosen::Portable) => Contestant::choice(Choice::portable(), plan.direction),
        (None, _) => Contestant::choice(choice, plan.direction),
    };
    finalists.push(chosen.slowed(options.slow_times));
    if plan.direction == Direction::PutFresh {
        fresh_rounds(&mut finalists, &objects, rounds)?;
    } else {
        paired_rounds(&mut finalists, &objects, rounds);
    }
    if by_cpu {
        finalists.iter_mut().for_each(Contestant::count_cpu_time);
    }
    Ok(Row::new(
        *plan,
        &finalists,
        [&best_bare, &best_kernel],
        &survey,
    ))
}

/// What was chosen, the table behind it (first measurement only), and the rows.
type Run = (Choice, Vec<Measured>, Vec<Row>);

/// Rows of these plans on fresh memory, printed as they come.
fn measure_all(
    plans: &[Plan],
    options: &Options,
    repetition: usize,
) -> Result<Run, Box<dyn Error>> {
    let sides = Sides::new()?;
    let choice = if options.guess {
        Choice::guess()
    } else {
        // SAFETY: the region is a live mapping nobody else uses now.
        unsafe { calibrate(&sides.medium()) }
    };
    let table = if repetition == 0 {
        // SAFETY: as above.
        unsafe { survey(&sides.medium()) }
    } else {
        Vec::new()
    };
    if !options.json {
        println!("{}", report::preamble(&choice));
        if !table.is_empty() {
            println!("{}", report::calibration(&choice, &table));
        }
        println!("{}", Row::heading());
    }
    let rounds = options.rounds * (1 + repetition);
    let mut rows = Vec::new();
    for plan in plans {
        let row = measure(plan, choice, &sides, options, rounds)?;
        if !options.json {
            row.print(options.survey);
        }
        rows.push(row);
    }
    Ok((choice, table, rows))
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = options()?;
    let wanted = |plan: &Plan| {
        let named = |only: &String| plan.name().starts_with(only);
        options.only.is_empty() || options.only.iter().any(named)
    };
    let plans: Vec<Plan> = Plan::all(&options.sizes_kib, options.page_kib)
        .into_iter()
        .filter(wanted)
        .collect();
    let (choice, table, mut rows) = measure_all(&plans, &options, 0)?;
    if options.gate == Gate::Floors {
        repeat::until_reached(&mut rows, |plans, repetition| {
            if !options.json {
                println!("\nbelow a floor, measured again: repetition {repetition}");
            }
            Ok(measure_all(plans, &options, repetition)?.2)
        })?;
    }
    let worst = rows.iter().map(Row::verdict).min();
    if options.json {
        let report = report::json(&choice, &table, &rows);
        println!("{}", serde_json::to_string_pretty(&report)?);
    }
    for row in rows.iter().filter(|row| row.verdict() <= Verdict::Below) {
        eprintln!("{}", row.failure());
    }
    Ok(match worst {
        Some(Verdict::Wrong) => ExitCode::FAILURE,
        Some(Verdict::Below) if options.gate == Gate::Floors => ExitCode::from(BELOW_FLOOR),
        _ => ExitCode::SUCCESS,
    })
}
