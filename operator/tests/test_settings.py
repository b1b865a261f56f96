"""Settings and the command line."""

from __future__ import annotations

import dataclasses

import pytest
from click.testing import CliRunner
from hymcache.operator.main import main
from hymcache.operator.settings import Settings


def test_every_setting_says_what_it_is() -> None:
    assert [f.name for f in dataclasses.fields(Settings) if len(f.metadata["help"]) < 20] == []


def test_every_setting_is_an_option() -> None:
    text = CliRunner().invoke(main, ["--help"], terminal_width=200).output
    assert [f.name for f in dataclasses.fields(Settings) if f"--{f.name.replace('_', '-')}" not in text] == []


def test_two_leaders_at_once_cannot_be_configured() -> None:
    with pytest.raises(ValueError, match="two leaders could act at once"):
        Settings(lease_seconds=10, renew_deadline_seconds=10)
    result = CliRunner().invoke(main, ["--lease-seconds=5"])
    assert result.exit_code == 2
    assert "renew-deadline-seconds: expected less than lease-seconds" in result.output


def test_an_empty_prefix_would_make_every_region_ours() -> None:
    with pytest.raises(ValueError, match="everything would be ours"):
        Settings(fabric_prefix="")


def test_every_process_of_a_pod_has_a_holder_name_of_its_own() -> None:
    settings = Settings(identity="pod")
    assert settings.holder() != settings.holder()
    assert settings.holder().startswith("pod_")
