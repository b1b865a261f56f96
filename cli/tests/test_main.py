"""The command group."""

import click
from click.testing import CliRunner
from hymcache.cli.main import main


def test_help_names_the_product() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "CXL memory regions" in result.output


def test_an_unknown_command_is_refused_by_name() -> None:
    result = CliRunner().invoke(main, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in click.unstyle(result.output)
