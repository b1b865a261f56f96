"""What every `hymcache region` command shares: its target, `--json`, sizes, and errors in one sentence.

Exit status: 0; 1 when the region refuses or something in it is wrong; 2 for arguments that cannot be.
"""

from __future__ import annotations

import json
from typing import IO, Any

import click
from hymcache.crds.quantity import parse_bytes
from hymcache.region import HandoverError, RegionError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


class Size(click.ParamType[int]):
    """A number of bytes, as Kubernetes writes quantities of memory: 1536Mi, 64Gi."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; fails naming the text."""
        try:
            return parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Sizes(click.ParamType[list[int]]):
    """Sizes with commas between."""

    name = "sizes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Bytes of each."""
        return [Size().convert(text, param, ctx) for text in str(value).split(",")]


class Failure(click.ClickException):
    """A refusal in one sentence, with a stable word for programs."""

    def __init__(self, kind: str, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.as_json = False

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click has a class variable here
        """The exit status."""
        return self.status

    def show(self, file: IO[Any] | None = None) -> None:
        """On stdout as one line of JSON where that was asked for, else on stderr as text."""
        if self.as_json:
            click.echo(json.dumps({"error": {"kind": self.kind, "message": self.message}}))
        else:
            click.echo(f"Error: {self.message}", file=file, err=file is None)


class RegionCommand(click.Command):
    """A command whose first argument is a region, by default the one of this pod."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.insert(0, click.Argument(["target"], envvar="HYMCACHE_REGION", metavar="TARGET"))
        self.params.append(click.Option(["--json", "as_json"], is_flag=True, help="Machine-readable output."))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; what cannot be is told as JSON too where that was asked for."""
        as_json = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if not as_json:
                raise
            caught = Failure("invalid", error.format_message(), status=2)
            caught.as_json = True
            raise caught from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what a region or its socket refuses becomes one sentence."""
        try:
            return super().invoke(ctx)
        except Failure as failure:
            caught = failure
        except RegionError as error:
            caught = Failure(error.kind, str(error))
        except HandoverError as error:
            caught = Failure(error.code, str(error))
        except ValueError as error:
            caught = Failure("invalid", str(error), status=2)
        caught.as_json = ctx.params["as_json"]
        raise caught


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, indent=2))


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table: the first column names, the others are numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, collapse_padding=True)
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right")
    return made


def console() -> Console:
    """Standard output; as wide as it must be where that is a file."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=200)


def show(*parts: Table | str) -> None:
    """Print tables and lines."""
    out = console()
    for part in parts:
        out.print(part)


def bytes_text(count: float) -> str:
    """Bytes for people: three digits and a binary unit."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 1000 * size else f"{count / size:.0f} {unit}"
    return f"{count:.0f} B"
