"""The reference page names what the code really uses."""

from __future__ import annotations

import re
from pathlib import Path

import hymcache.operator.reference as reference

SOURCE = Path(reference.__file__).parent


def code() -> str:
    return "\n".join(file.read_text() for file in SOURCE.rglob("*.py") if file.name != "reference.py")


def test_every_event_reason_in_the_code_is_documented_and_the_other_way_round() -> None:
    used = set(re.findall(r'"(?:Normal|Warning)", "([A-Z][a-z]+[A-Z]\w+)"', code())) | {"NoCapacity", "ComposeFailed"}
    assert used == set(reference.EVENTS)


def test_every_condition_is_documented() -> None:
    documented = {name for kind in reference.CONDITIONS.values() for name in kind}
    constants = set(re.findall(r'^[A-Z_]+ = "([A-Z][A-Za-z]+)"$', code(), re.MULTILINE))
    assert constants <= documented
    missing = {
        name
        for name in documented
        if f'"{name.removeprefix("hymcache.io/")}"' not in code().replace("hymcache.io/", "")
    }
    assert not missing, "documented, but not in the code"


def test_every_metric_has_its_line() -> None:
    page = reference.page()
    assert "| `hymcache_fabric_calls` | counter | fabric, call, outcome |" in page
    assert "| `--orphan-grace-seconds` | `120.0` |" in page
