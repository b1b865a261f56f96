"""Bars on time: of the product, not of what the machine does besides."""

from __future__ import annotations

from collections.abc import Callable

ROUNDS = 3


def best_round(what: str, life: Callable[[int], float], *, below: float) -> None:
    """Play `life` until one round takes less than `below` seconds, at most `ROUNDS` times.

    Other work on the machine makes a round longer and never shorter, so the best one tells what the product needs.

    Args:
        what: what is measured, for the output.
        life: one round from the same beginning; gets its number, from 0 on, and returns the seconds that it measured.
        below: the bar.

    Raises:
        AssertionError: no round met the bar.
    """
    rounds: list[float] = []
    for number in range(ROUNDS):
        rounds.append(life(number))
        print(f"{what}: {rounds[-1]:.1f} s")
        if rounds[-1] < below:
            return
    found = ", ".join(f"{seconds:.1f}" for seconds in rounds)
    raise AssertionError(f"{what}: expected less than {below:g} s in one of {ROUNDS} rounds, found {found} s")
