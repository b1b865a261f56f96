"""`python -m demo`: options, signals, progress; see `make demo`."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click
from engine.client import RequestFailed
from engine.environment import install
from engine.server import ServerError
from hymcache.operator.fabric.port import FabricError
from hymcache.region import RegionError
from rich.console import Console

from demo.measure import Wrong, measure, rows
from demo.preflight import PreflightError, check
from demo.report import as_json, show
from demo.settings import Settings, SettingsError, lengths
from demo.stage import stage

DEFAULTS = Settings()
EXPECTED_FAILURES = (
    SettingsError,
    PreflightError,
    ServerError,
    RequestFailed,
    FabricError,
    RegionError,
    Wrong,
    OSError,
)


class Stopped(BaseException):
    """A signal asked the demo to end."""


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into `Stopped`, and let none interrupt the cleaning up."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress:
    """What happens, on standard error: one live line in a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        """Say what begins now."""
        self._console.print(f"[dim]{time.monotonic() - self._started:6.1f} s[/dim]  {text}", highlight=False)


@click.command(context_settings={"auto_envvar_prefix": "DEMO", "show_default": True})
@click.option("--tokens", default=",".join(map(str, DEFAULTS.tokens)), help="Prompt lengths, with commas between.")
@click.option("--repeats", type=int, default=DEFAULTS.repeats, help="Rounds; the table shows medians.")
@click.option("--output-tokens", type=int, default=DEFAULTS.output_tokens, help="Tokens drawn and compared.")
@click.option("--region-mib", type=int, default=DEFAULTS.region_mib, help="Size of the region in MiB.")
@click.option("--seed", type=int, default=DEFAULTS.seed, help="Chooses the texts.")
@click.option("--keep", is_flag=True, help="Keep the folder with the logs.")
@click.option("--json", "json_wanted", is_flag=True, envvar="DEMO_JSON", help="Print JSON instead of the table.")
def main(tokens: str, json_wanted: bool, **options: int) -> None:
    """Two vLLM servers on two hosts of one memory appliance share a prefix through a region.

    Each option can be given as DEMO_<OPTION>. Exit status 1 when a chunk was not found or a text differs.
    """
    say = Progress()
    with stopping_on_signals():
        try:
            settings = Settings(tokens=lengths(tokens), **options)  # type: ignore[arg-type]
            check(settings)
            say("looking for the vLLM environment (two minutes the first time)")
            install()
            with stage(settings, say) as (first, other):
                rounds = measure(first.client, other.client, settings, say)
                say("done; stopping everything")
        except EXPECTED_FAILURES as error:
            raise click.ClickException(str(error)) from error
        except Stopped as stopped:
            say(f"stopped by {stopped}; nothing is left behind")
            sys.exit(130)
    found = rows(rounds)
    if json_wanted:
        click.echo(as_json(found, rounds, settings))
    else:
        show(found, settings, Console())
    sys.exit(0 if all(row.correct for row in found) else 1)


if __name__ == "__main__":
    main(prog_name="make demo")
