//! The rows: what is copied by whom, and what each must reach.

use crate::work::Direction;

const MIB: usize = 1 << 20;

/// Who copies in the `chosen` column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chosen {
    Calibrated,
    Portable,
    TwoThreads,
}

/// One row's work.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) direction: Direction,
    pub(crate) object_bytes: usize,
    pub(crate) page_bytes: usize,
    pub(crate) chosen: Chosen,
}

/// A floor that must hold and a goal to claim, both as a multiple of something measured in the same rounds.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) floor: f64,
    pub(crate) goal: f64,
}

impl Plan {
    fn new(direction: Direction, object_bytes: usize) -> Self {
        Self {
            direction,
            object_bytes,
            page_bytes: object_bytes,
            chosen: Chosen::Calibrated,
        }
    }

    /// Every row, whole objects of these sizes first, then 4 MiB in pages.
    pub(crate) fn all(sizes_kib: &[usize], page_kib: usize) -> Vec<Self> {
        let whole = |direction| {
            sizes_kib
                .iter()
                .map(move |kib| Self::new(direction, kib << 10))
        };
        let pages = |direction| Self {
            page_bytes: page_kib << 10,
            ..Self::new(direction, 4 * MIB)
        };
        let by = |chosen, mib| {
            [Direction::Put, Direction::Get].map(|d| Self {
                chosen,
                ..Self::new(d, mib * MIB)
            })
        };
        Direction::ALL
            .into_iter()
            .flat_map(whole)
            .chain([Direction::Put, Direction::Get, Direction::GetForeign].map(pages))
            .chain(by(Chosen::Portable, 4))
            .chain(by(Chosen::TwoThreads, 32))
            .collect()
    }

    pub(crate) fn name(&self) -> String {
        let pages = if self.page_bytes < self.object_bytes {
            format!(" {} KiB pages", self.page_bytes >> 10)
        } else {
            String::new()
        };
        let chosen = match self.chosen {
            Chosen::Calibrated => "",
            Chosen::Portable => " portable",
            Chosen::TwoThreads => " 2 threads",
        };
        format!("{}{pages}{chosen}", self.direction.name())
    }

    /// What the chosen copy must reach as a multiple of `memcpy`, where something is promised.
    pub(crate) fn against_memcpy(&self) -> Option<Target> {
        let target = |floor, goal| Some(Target { floor, goal });
        match (self.chosen, self.direction) {
            (Chosen::Portable, _) => target(0.85, 0.95),
            (Chosen::TwoThreads, _) => target(1.3, 1.9),
            _ if self.page_bytes < 32 << 10 => None,
            _ if self.page_bytes < self.object_bytes && self.direction != Direction::GetForeign => {
                target(0.9, 1.1)
            }
            (_, Direction::Get) if self.object_bytes == MIB => target(0.9, 1.1),
            _ if self.object_bytes < 4 * MIB => None,
            (_, Direction::Put) => target(0.95, 1.2),
            (_, Direction::PutFresh) => target(0.8, 1.0),
            (_, Direction::Get) => target(1.0, 1.3),
            (_, Direction::GetForeign) => target(0.85, 1.05),
        }
    }

    /// The same as a multiple of the best unverified copy.
    pub(crate) fn against_bare(&self) -> Option<Target> {
        let large = self.direction == Direction::Get && self.object_bytes >= 4 * MIB;
        let plain = self.chosen == Chosen::Calibrated && self.page_bytes == self.object_bytes;
        (large && plain).then_some(Target {
            floor: 0.85,
            goal: 0.95,
        })
    }
}

/// How a row did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Some bytes or CRCs were wrong.
    Wrong,
    /// Below a floor.
    Below,
    /// At every floor.
    Floor,
    /// At every goal.
    Goal,
    /// Nothing is promised.
    None,
}

impl Verdict {
    /// The worst of what the targets say; no targets, no verdict.
    pub(crate) fn of(measured: [(Option<Target>, f64); 2]) -> Self {
        let judge = |(target, value): (Option<Target>, f64)| match target {
            None => Self::None,
            Some(target) if value >= target.goal => Self::Goal,
            Some(target) if value >= target.floor => Self::Floor,
            Some(_) => Self::Below,
        };
        measured.into_iter().map(judge).min().unwrap_or(Self::None)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Wrong => "WRONG",
            Self::Below => "BELOW",
            Self::Floor => "floor",
            Self::Goal => "goal",
            Self::None => "-",
        }
    }
}
