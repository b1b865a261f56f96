"""A campaign goes on where it ended, gives the same steps under the same seed, and reports what was found."""

from __future__ import annotations

import random
from pathlib import Path

from figures.world import shared_memory
from soak import churning, cycles, late, silence, zombie
from soak.campaign import Campaign, Log, Result, run


def made(ran: list[float]) -> Campaign:
    def step(path: Path, rng: random.Random) -> Result:
        assert not path.exists()
        ran.append(rng.random())
        return {"value": ran[-1]}

    def problems(result: Result) -> list[str]:
        return ["it is the third"] if result["step"] == 2 else []

    return Campaign("made", "nothing", 3, step, problems, lambda results: {"steps": len(results)})


def go(campaign: Campaign, log: Log, steps: int, seed: int = 1) -> list[str]:
    return run(campaign, log, seed=seed, steps=steps, folder=shared_memory(), progress=lambda _: None)


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path) -> None:
    ran: list[float] = []
    campaign = made(ran)
    assert go(campaign, Log(tmp_path, campaign, 1), 2) == []
    assert go(campaign, Log(tmp_path, campaign, 1), 3) == ["made, step 2 of seed 1: it is the third"]
    assert len(ran) == 3
    assert len(Log(tmp_path, campaign, 1).results) == 3


def test_a_line_that_was_cut_is_run_again(tmp_path: Path) -> None:
    ran: list[float] = []
    campaign = made(ran)
    log = Log(tmp_path, campaign, 1)
    go(campaign, log, 2)
    log.path.write_text(log.path.read_text()[:-5])
    go(campaign, Log(tmp_path, campaign, 1), 2)
    assert len(ran) == 3
    assert ran[2] == ran[1], "the same step of the same seed is the same"
    assert sorted(Log(tmp_path, campaign, 1).results) == [0, 1]


def test_seeds_differ(tmp_path: Path) -> None:
    ran: list[float] = []
    campaign = made(ran)
    go(campaign, Log(tmp_path, campaign, 1), 1)
    go(campaign, Log(tmp_path, campaign, 2), 1, seed=2)
    assert ran[0] != ran[1]


def test_what_must_not_be_is_a_problem() -> None:
    churned = {
        "wrong": 0,
        "failed": 0,
        "splits": {"committed": 1},
        "left_by_the_dead": 0,
        "usable": [[5, 5], [5, 5]],
        "seconds_until_swept": 0.1,
    }
    assert churning.problems(churned) == []
    for change in (
        {"wrong": 1},
        {"failed": 1},
        {"splits": {"committed": 0}},
        {"left_by_the_dead": 1},
        {"usable": [[5, 5], [4, 5]]},
        {"seconds_until_swept": 2.5},
    ):
        assert churning.problems(churned | change)
    resumed = {"inside": 30, "unreserved": 0, "refused": 0, "wrong": 0, "lost": 0}
    assert late.problems(resumed) == []
    for change in ({"inside": 1}, {"unreserved": 30}, {"refused": 1}, {"wrong": 1}, {"lost": 1}):
        assert late.problems(resumed | change)
    stopped = {"wrong": 0, "verify_failures": 0, "inside": 1, "taken": 0, "accounted_seconds": 0.0, "words": True}
    assert zombie.problems(stopped) == []
    for change in (
        {"wrong": 1},
        {"verify_failures": 1},
        {"taken": 1},
        {"inside": 0},
        {"accounted_seconds": 3.0},
        {"words": False},
    ):
        assert zombie.problems(stopped | change)
    starved = {"swept": 0, "slots_taken": 5, "held_chunks": 4, "chunks_lost": 0, "working_afterwards": 4}
    assert silence.problems(starved) == []
    for change in ({"swept": 1}, {"slots_taken": 4}, {"chunks_lost": 1}, {"held_chunks": 0}, {"working_afterwards": 3}):
        assert silence.problems(starved | change)
    cycled = {"wrong": 0, "growth_bytes_per_million": 0, "descriptors_min": 9, "descriptors_max": 9}
    assert cycles.problems(cycled) == []
    for change in ({"wrong": 1}, {"growth_bytes_per_million": 1 << 20}, {"descriptors_max": 10}):
        assert cycles.problems(cycled | change)


def test_a_short_churn_late_commits_and_a_zombie_pass(tmp_path: Path) -> None:
    for campaign in (churning.FREEZES, late.LATE, zombie.ZOMBIE):
        assert go(campaign, Log(tmp_path, campaign, 1), 1) == []
