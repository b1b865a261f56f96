"""What the demo prints: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.measure import CHUNK_TOKENS, LOADS, Round, Row
from demo.settings import Settings

COLUMNS = (
    ("tokens", "prompt\ntokens"),
    ("cold", "cold\nTTFT s"),
    ("same", "same node\nTTFT s"),
    ("cross", "other node\nTTFT s"),
    ("speedup", "faster than\ncold"),
    ("hits", "tokens\nloaded"),
    ("mib", "MiB\nmoved"),
    ("rate", "copy\nGB/s"),
    ("equal", "text\nequal"),
)


def table(rows: list[Row]) -> Table:
    """Medians of every length."""
    shown = Table(title="The same text: computed, found again on its node, found on the other node", title_style="bold")
    for _, header in COLUMNS:
        shown.add_column(header, justify="right")
    for row in rows:
        hits = f"{row.hit_tokens}" if row.correct else f"[red]{row.hit_tokens} of {row.expected_hit_tokens}[/red]"
        shown.add_row(
            str(row.tokens),
            f"{row.cold_seconds:.2f}",
            f"{row.same_seconds:.3f}",
            f"{row.cross_seconds:.3f}",
            f"{row.speedup:.0f}x",
            hits,
            f"{row.mib:.0f}",
            f"{row.gb_per_second:.1f}",
            "yes" if row.text_equal else "[red]no[/red]",
        )
    return shown


def notes(rows: list[Row], settings: Settings) -> str:
    """What the table means and what it does not."""
    worst = max(row.cross_over_same for row in rows)
    return (
        f"Medians of {settings.repeats} texts, each loaded {LOADS} times a node. Whole chunks of {CHUNK_TOKENS} tokens "
        f"are loaded, the rest of a prompt is computed. The other node's first token came after {worst:.2f}x the same "
        "node's time at most.\n"
        "Model: SmolLM2-135M-Instruct, de-quantised from the 4-bit file that a Python package carries, fp32 on the "
        "CPU: real text and real attention, not a benchmark of a large model. Memory: DRAM of this machine behind an "
        "emulated appliance; two processes stand for two hosts."
    )


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": names[0].partition(":")[2].strip() if names else platform.processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def as_json(rows: list[Row], rounds: list[Round], settings: Settings) -> str:
    """Everything that was measured."""
    found = {
        "settings": asdict(settings),
        "machine": machine(),
        "rows": [{**asdict(row), "correct": row.correct} for row in rows],
        "rounds": [asdict(one) for one in rounds],
    }
    return json.dumps(found, indent=2)


def show(rows: list[Row], settings: Settings, console: Console) -> None:
    """Print the table and its notes."""
    console.print(table(rows))
    console.print(notes(rows, settings), highlight=False)
