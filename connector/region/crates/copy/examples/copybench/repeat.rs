//! Repetitions: a floor is missed when several independent measurements miss it.
//!
//! Other work on the machine, a frequency that ramps up, an unlucky placement of pages or a calibration in a bad moment
//! pass; a slow kernel stays. So a repetition starts after a pause, on new memory, with a new choice of kernels and
//! more rounds, and a row keeps its best measurement. Wrong bytes are never measured again: one is one too many.

use crate::plan::{Plan, Verdict};
use crate::report::Row;
use std::error::Error;
use std::time::Duration;

/// Pauses before the repetitions; their number is how often a floor may be missed before it counts.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Measures these rows again while any is below its floor. `measure_all` measures some plans in the given repetition,
/// from 1; the first measurement was 0.
pub(crate) fn until_reached(
    rows: &mut [Row],
    mut measure_all: impl FnMut(&[Plan], usize) -> Result<Vec<Row>, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    for (repetition, pause) in (1..).zip(PAUSES) {
        let below: Vec<&mut Row> = rows
            .iter_mut()
            .filter(|row| row.verdict() == Verdict::Below)
            .collect();
        if below.is_empty() {
            break;
        }
        std::thread::sleep(pause);
        let plans: Vec<Plan> = below.iter().map(|row| row.plan).collect();
        for (row, again) in below.into_iter().zip(measure_all(&plans, repetition)?) {
            row.repeated(again);
        }
    }
    Ok(())
}
