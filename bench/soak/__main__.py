"""`make soak-region`: the campaigns, one after the other; exit status 1 when one of them found something."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from figures.world import shared_memory
from soak.campaign import Log, run
from soak.churning import FREEZES, KILLS
from soak.cycles import CYCLING
from soak.late import LATE
from soak.silence import SILENCE
from soak.zombie import ZOMBIE

CAMPAIGNS = {campaign.name: campaign for campaign in (KILLS, FREEZES, LATE, ZOMBIE, SILENCE, CYCLING)}
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the chosen campaigns; the exit status."""
    parser = argparse.ArgumentParser(prog="make soak-region", description=__doc__)
    parser.add_argument("--only", default=",".join(CAMPAIGNS), help=f"of {', '.join(CAMPAIGNS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", type=float, default=1.0, help="part of each campaign's steps, at least one")
    parser.add_argument("--log", type=Path, default=ROOT / "out/soak", help="results, by which a run goes on later")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(CAMPAIGNS):
        parser.error(f"--only: expected campaigns of {', '.join(CAMPAIGNS)}, found {', '.join(sorted(unknown))}")
    found = []
    console = Console(stderr=True)
    for name in names:
        campaign = CAMPAIGNS[name]
        steps = max(1, math.ceil(campaign.steps * options.part))
        log = Log(options.log, campaign, options.seed)
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task(campaign.what, total=steps)
            found += run(
                campaign,
                log,
                seed=options.seed,
                steps=steps,
                folder=shared_memory(),
                progress=lambda done, task=task, bar=bar: bar.update(task, completed=done),  # type: ignore[misc]
            )
        summary = campaign.total([log.results[step] for step in range(steps)])
        print(json.dumps({"campaign": name, "what": campaign.what, "steps": steps, "seed": options.seed, **summary}))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
