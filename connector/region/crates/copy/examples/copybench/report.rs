//! The table and its JSON.

use crate::contest::{Contestant, median, quantile, ratio};
use crate::plan::{Chosen, Plan, Target, Verdict};
use hymcache_copy::{Choice, Measured, Stores, dropped, kernels};
use serde_json::{Value, json};

/// Figures of one contestant in one row.
struct Figures {
    name: String,
    ratio: f64,
    gb_per_second: f64,
    cpu_seconds_per_gb: f64,
    p50_us: f64,
    p99_us: f64,
    objects: u64,
    wrong: u64,
}

impl Figures {
    fn new(contestant: &Contestant, baseline: &Contestant) -> Self {
        let us = |q| 1e6 * quantile(&contestant.object_seconds, q);
        Self {
            name: contestant.name.clone(),
            ratio: ratio(&baseline.seconds, &contestant.seconds),
            gb_per_second: 1e-9 / median(&contestant.seconds),
            cpu_seconds_per_gb: 1e9 * median(&contestant.cpu),
            p50_us: us(0.5),
            p99_us: us(0.99),
            objects: contestant.objects,
            wrong: contestant.wrong,
        }
    }

    fn json(&self) -> Value {
        if self.wrong > 0 {
            return json!({ "name": self.name, "objects": self.objects, "wrong": self.wrong });
        }
        json!({
            "name": self.name, "ratio": self.ratio, "gb_per_second": self.gb_per_second,
            "cpu_seconds_per_gb": self.cpu_seconds_per_gb, "p50_us": self.p50_us, "p99_us": self.p99_us,
            "objects": self.objects, "wrong": 0,
        })
    }
}

/// One line of the table.
pub(crate) struct Row {
    pub(crate) plan: Plan,
    memcpy: Figures,
    bare: Figures,
    best: Figures,
    chosen: Figures,
    chosen_to_bare: f64,
    cpu_to_memcpy: f64,
    survey: Vec<(String, f64, u64)>,
    measurements: usize,
}

impl Row {
    /// From the finalists, `memcpy` first, the choice last, and the survey, `memcpy` first.
    pub(crate) fn new(
        plan: Plan,
        finalists: &[Contestant],
        [bare, best]: [&String; 2],
        survey: &[Contestant],
    ) -> Self {
        let named = |name: &String| {
            finalists
                .iter()
                .find(|c| c.name == *name)
                .unwrap_or(&finalists[0])
        };
        let figures = |c: &Contestant| Figures::new(c, &finalists[0]);
        let chosen = &finalists[finalists.len() - 1];
        Self {
            plan,
            memcpy: figures(&finalists[0]),
            bare: figures(named(bare)),
            best: figures(named(best)),
            chosen: figures(chosen),
            chosen_to_bare: ratio(&named(bare).seconds, &chosen.seconds),
            cpu_to_memcpy: 1.0 / ratio(&finalists[0].cpu, &chosen.cpu),
            survey: survey
                .iter()
                .map(|c| {
                    (
                        c.name.clone(),
                        ratio(&survey[0].seconds, &c.seconds),
                        c.wrong,
                    )
                })
                .collect(),
            measurements: 1,
        }
    }

    /// Takes another measurement's figures when they are wrong or better, and counts it.
    pub(crate) fn repeated(&mut self, again: Self) {
        let measurements = self.measurements + 1;
        let better = again.shortfall() > self.shortfall();
        if again.failed() || (better && !self.failed()) {
            *self = again;
        }
        self.measurements = measurements;
    }

    /// The lowest of what was reached as a multiple of its floor: below 1 a floor is missed.
    fn shortfall(&self) -> f64 {
        self.measured()
            .into_iter()
            .filter_map(|(target, value)| Some(value / target?.floor))
            .fold(f64::INFINITY, f64::min)
    }

    fn measured(&self) -> [(Option<Target>, f64); 2] {
        [
            (self.plan.against_memcpy(), self.chosen.ratio),
            (self.plan.against_bare(), self.chosen_to_bare),
        ]
    }

    /// One sentence about a row that failed.
    pub(crate) fn failure(&self) -> String {
        let (name, kib) = (self.plan.name(), self.plan.object_bytes >> 10);
        if self.failed() {
            return format!(
                "{name} {kib} KiB: wrong bytes or CRCs from {}",
                self.wrong_names()
            );
        }
        let floors = self.measured().map(|(target, value)| match target {
            Some(target) => format!("{value:.2} (floor {:.2})", target.floor),
            None => format!("{value:.2}"),
        });
        format!(
            "{name} {kib} KiB: at best {} of memcpy and {} of the best bare copy in {} measurements",
            floors[0], floors[1], self.measurements
        )
    }

    /// What the row's targets say.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.failed() {
            return Verdict::Wrong;
        }
        if self.plan.chosen == Chosen::TwoThreads && !idle() {
            return Verdict::None;
        }
        Verdict::of(self.measured())
    }

    /// True when anything that ran in this row gave a wrong byte or CRC.
    fn failed(&self) -> bool {
        let finals = [&self.memcpy, &self.bare, &self.best, &self.chosen];
        finals.iter().any(|f| f.wrong > 0) || self.survey.iter().any(|(_, _, wrong)| *wrong > 0)
    }

    pub(crate) fn heading() -> String {
        format!(
            "{:<24}{:>8} {:>7}  {:<21}{:<29}{:>6} {:>7} {:>9} {:>8} {:>8} {:>6}  {:>10} {}",
            "work",
            "KiB",
            "memcpy",
            "best bare",
            "best kernel",
            "chosen",
            "/bare",
            "cpu s/GB",
            "p50 us",
            "p99 us",
            "ok",
            "cpu/memcpy",
            "verdict"
        )
    }

    pub(crate) fn print(&self, survey: bool) {
        let label = format!(
            "{:<24}{:>8}",
            self.plan.name(),
            self.plan.object_bytes >> 10
        );
        if self.failed() {
            println!("{label} WRONG: {}", self.wrong_names());
            return;
        }
        println!(
            "{label} {:>7.2}  {:<16}{:>4.2} {:<23}{:>4.2}  {:>6.2} {:>7.2} {:>9.3} {:>8.1} {:>8.1} {:>6}  {:>10.2} {}",
            self.memcpy.gb_per_second,
            self.bare.name,
            self.bare.ratio,
            self.best.name,
            self.best.ratio,
            self.chosen.ratio,
            self.chosen_to_bare,
            self.chosen.cpu_seconds_per_gb,
            self.chosen.p50_us,
            self.chosen.p99_us,
            self.chosen.objects,
            self.cpu_to_memcpy,
            self.verdict().word(),
        );
        if survey {
            for (name, ratio, _) in &self.survey {
                println!("{:>40}  {name:<28}{ratio:>5.2}", "");
            }
        }
    }

    fn wrong_names(&self) -> String {
        let finals =
            [&self.memcpy, &self.bare, &self.best, &self.chosen].map(|f| (f.name.clone(), f.wrong));
        let survey = self
            .survey
            .iter()
            .map(|(name, _, wrong)| (name.clone(), *wrong));
        let wrong = finals
            .into_iter()
            .chain(survey)
            .filter(|(_, wrong)| *wrong > 0);
        wrong
            .map(|(name, wrong)| format!("{name} {wrong} objects"))
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn json(&self) -> Value {
        let failed = self.failed();
        let survey = self.survey.iter().map(|(name, ratio, wrong)| match wrong {
            0 => json!({ "name": name, "ratio": ratio }),
            _ => json!({ "name": name, "wrong": wrong }),
        });
        json!({
            "work": self.plan.name(), "object_bytes": self.plan.object_bytes, "verdict": self.verdict().word(), "failed": failed,
            "memcpy": self.memcpy.json(), "best_bare": self.bare.json(), "best_kernel": self.best.json(),
            "chosen": self.chosen.json(),
            "chosen_to_bare": (!failed).then_some(self.chosen_to_bare),
            "cpu_to_memcpy": (!failed).then_some(self.cpu_to_memcpy),
            "measurements": self.measurements, "survey": survey.collect::<Vec<_>>(),
        })
    }
}

/// True when two threads of ours find two CPUs: elsewhere their row is shown and nothing is asked of it.
fn idle() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let minute = load
        .as_deref()
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    minute.is_none_or(|load| load + 1.0 <= f64::from(u32::try_from(cpus).unwrap_or(u32::MAX)))
}

/// The machine and what it chose.
pub(crate) fn preamble(choice: &Choice) -> String {
    let names: Vec<&str> = kernels().iter().map(|k| k.name).collect();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "chosen: {}\nkernels: {}\nload: {}",
        choice.describe(),
        names.join(", "),
        load.trim()
    )
}

/// Why the kernels were chosen: every candidate against the expected one, fastest first, the chosen ones marked.
pub(crate) fn calibration(choice: &Choice, table: &[Measured]) -> String {
    let mut lines = vec![
        "calibration: times as fast as the expected kernel, which is replaced from 1.05 on"
            .to_owned(),
    ];
    for put in [true, false] {
        let mut candidates: Vec<&Measured> = table.iter().filter(|one| one.put == put).collect();
        candidates.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
        lines.extend(candidates.into_iter().map(|one| {
            format!(
                "  {:<4}{:<24}{:<10}{:>6.2}{}",
                work(one),
                one.kernel.name,
                stores(one),
                one.ratio,
                if is_chosen(choice, one) {
                    "  chosen"
                } else {
                    ""
                }
            )
        }));
    }
    lines.join("\n")
}

const fn work(one: &Measured) -> &'static str {
    if one.put { "put" } else { "get" }
}

fn stores(one: &Measured) -> &'static str {
    match one.stores {
        Stores::Ordinary => "ordinary",
        Stores::NonTemporal => "streaming",
    }
}

fn is_chosen(choice: &Choice, one: &Measured) -> bool {
    if one.put {
        choice.put.id == one.kernel.id
    } else {
        choice.get.id == one.kernel.id && choice.get_stores == one.stores
    }
}

/// Everything a run says.
pub(crate) fn json(choice: &Choice, table: &[Measured], rows: &[Row]) -> Value {
    let calibration: Vec<Value> = table
        .iter()
        .map(|one| {
            json!({
                "work": work(one), "kernel": one.kernel.name, "stores": stores(one), "ratio": one.ratio,
                "chosen": is_chosen(choice, one),
            })
        })
        .collect();
    let dropped: Vec<Value> = dropped()
        .iter()
        .map(|d| json!({ "name": d.name, "reason": d.reason }))
        .collect();
    json!({
        "chosen": choice.describe(), "kernels": kernels().iter().map(|k| k.name).collect::<Vec<_>>(),
        "dropped": dropped, "calibration": calibration, "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
    })
}
