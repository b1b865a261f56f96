"""The demo's own rules: honest texts, honest rows, clear refusals, and nothing left behind after a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from demo import preflight
from demo.measure import Round, rows
from demo.preflight import PreflightError
from demo.settings import Settings, SettingsError, lengths
from demo.texts import prompt

E2E = Path(__file__).resolve().parents[2]


def words(text: str) -> list[int]:
    """A tokenizer that knows no model: one number a word."""
    return [sum(map(ord, word)) for word in text.split()]


def test_a_text_is_reproducible_and_of_exactly_the_wanted_length():
    assert prompt("a", 1000, words) == prompt("a", 1000, words)
    assert len(prompt("a", 1000, words)) == 1000


def test_two_texts_differ_within_the_first_chunk():
    texts = [tuple(prompt(f"{n}", 300, words)[:64]) for n in range(10)]
    assert len(set(texts)) == 10


def one_round(**changes) -> Round:
    base = Round(
        tokens=1000,
        cold_seconds=4.0,
        same_seconds=0.2,
        cross_seconds=0.2,
        same_hit_tokens=768,
        cross_hit_tokens=768,
        cross_bytes=1 << 20,
        cross_copy_seconds=0.001,
        text_equal=True,
    )
    return replace(base, **changes)


def test_a_row_has_medians_and_the_worst_hits():
    (row,) = rows([one_round(cold_seconds=s, cross_seconds=s / 20) for s in (3.0, 4.0, 50.0)])
    assert row.cold_seconds == 4.0
    assert row.speedup == pytest.approx(20)
    assert row.expected_hit_tokens == row.hit_tokens == 768
    assert row.correct


@pytest.mark.parametrize("flaw", [{"cross_hit_tokens": 512}, {"text_equal": False}])
def test_one_flawed_round_makes_the_row_wrong(flaw):
    (row,) = rows([one_round(), one_round(**flaw), one_round()])
    assert not row.correct


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"tokens": (100,)}, "DEMO_TOKENS"),
        ({"tokens": (9000,)}, "DEMO_TOKENS"),
        ({"tokens": ()}, "DEMO_TOKENS"),
        ({"repeats": 0}, "DEMO_REPEATS"),
        ({"region_mib": 100}, "DEMO_REGION_MIB"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(changes, name):
    with pytest.raises(SettingsError, match=name):
        Settings(**changes)


def test_lengths_are_read_with_commas_or_blanks():
    assert lengths("2000, 1000 4000") == (1000, 2000, 4000)
    with pytest.raises(SettingsError, match="some"):
        lengths("some")


def test_too_little_memory_is_said_with_both_numbers(monkeypatch):
    monkeypatch.setattr(preflight, "memory_available_mib", lambda: 2048)
    with pytest.raises(PreflightError, match=r"need \d+\.\d GiB, found 2\.0 GiB"):
        preflight.check(Settings())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cleans_up_and_a_second_one_does_not_interrupt_that(tmp_path, number):
    script = textwrap.dedent(
        f"""
        import contextlib, pathlib, sys, time
        from demo.__main__ import Stopped, stopping_on_signals
        left = pathlib.Path({str(tmp_path / "left")!r})
        def clean():
            print("cleaning", flush=True)
            time.sleep(0.5)
            left.unlink()
        try:
            with stopping_on_signals(), contextlib.ExitStack() as cleanup:
                left.touch()
                cleanup.callback(clean)
                print("up", flush=True)
                time.sleep(60)
        except Stopped as stopped:
            sys.exit(f"stopped by {{stopped}}")
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=E2E
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    child.send_signal(number)
    assert child.stdout.readline() == "cleaning\n"
    child.send_signal(number)
    _, errors = child.communicate(timeout=30)
    assert errors.strip() == f"stopped by {number.name}"
    assert not (tmp_path / "left").exists()
