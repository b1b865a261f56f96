"""`hymcache appliance`: run one, and turn its knobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from hymcache.crds.quantity import format_bytes
from hymcache.emulator.admin.client import Admin, AdminError
from hymcache.emulator.command import FILE, run
from hymcache.emulator.model import Link

Table = list[tuple[str, ...]]


@click.group()
def appliance() -> None:
    """Memory appliance emulator: run it, cable hosts, inject faults, cut its power."""


appliance.add_command(run)


class Remote(click.Command):
    """A command that talks to a running appliance."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(["--url"], envvar="HYMCACHE_APPLIANCE_URL", help="URL of the appliance."),
            click.Option(["--port-file"], type=FILE, help="File that the appliance wrote its URL to."),
            click.Option(["--user"], envvar="HYMCACHE_APPLIANCE_USER", help="User of the service."),
            click.Option(["--password-file"], type=FILE, envvar="HYMCACHE_APPLIANCE_PASSWORD_FILE", help="Password."),
            click.Option(["--tls-ca"], type=FILE, help="PEM certificate that signed the appliance's."),
            click.Option(["--json", "as_json"], is_flag=True, help="The answer as it came."),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Take the connection's options out of the command's own."""
        options = {name: ctx.params.pop(name) for name in ("url", "port_file", "user", "password_file", "tls_ca")}
        ctx.obj = Call(_admin(**options), ctx.params.pop("as_json"))
        return super().invoke(ctx)


class Call:
    """One command's access to the appliance, and how it prints."""

    def __init__(self, admin: Admin, as_json: bool) -> None:
        self._admin = admin
        self._as_json = as_json

    def __call__(self, method: str, path: str, body: Any, show: Callable[[Any], str]) -> None:
        """Send a request and print its answer: raw JSON, or what `show` makes of it."""
        try:
            answer = asyncio.run(self._admin.call(method, path, body))
        except AdminError as error:
            raise click.ClickException(str(error)) from error
        click.echo(json.dumps(answer, indent=2) if self._as_json else show(answer))


@appliance.command(cls=Remote)
@click.option("--add", metavar="NAME=SYSTEM_UUID", help="Cable a host.")
@click.option("--remove", metavar="NAME", help="Take a host and its cable away.")
@click.option("--force", is_flag=True, help="With --remove: also out of connections.")
@click.option("--link", "link", nargs=2, metavar="NAME up|down", help="Plug a cable in or pull it.")
@click.pass_obj
def hosts(call: Call, add: str | None, remove: str | None, force: bool, link: tuple[str, str] | None) -> None:
    """List the cabled hosts, or change one."""
    if sum(option is not None for option in (add, remove, link)) > 1:
        raise click.UsageError("--add, --remove and --link: expected one of them at a time")
    if add is not None:
        name, equals, uuid = add.partition("=")
        if not equals:
            raise click.UsageError(f"--add: expected NAME=SYSTEM_UUID, found {add}")
        call("POST", "hosts", {"name": name, "uuid": uuid}, lambda host: f"{host['name']} cabled: {host['cable']}")
    elif remove is not None:
        path = f"hosts/{quote(remove, safe='')}{'?force=true' if force else ''}"
        call("DELETE", path, None, lambda _: f"{remove} removed")
    elif link is not None:
        if link[1] not in {state.value for state in Link}:
            raise click.UsageError(f"--link: expected up or down, found {link[1]}")
        change = {"host": link[0], "state": link[1]}
        call("POST", "links", change, lambda answer: f"{answer['host']}: link {answer['state']}")
    else:
        call("GET", "hosts", None, _hosts)


@appliance.command(cls=Remote)
@click.option("--set", "rules", metavar="JSON", help='Rules, e.g. [{"method":"POST","fault":"lost-reply"}].')
@click.option("--file", "file", type=FILE, help="File with the rules.")
@click.option("--clear", is_flag=True, help="No faults any more.")
@click.pass_obj
def faults(call: Call, rules: str | None, file: Path | None, clear: bool) -> None:
    """List the faults in force and how often each was met, or set them."""
    if sum((rules is not None, file is not None, clear)) > 1:
        raise click.UsageError("--set, --file and --clear: expected one of them at a time")
    if clear:
        call("DELETE", "faults", None, lambda _: "no faults")
    elif rules is not None or file is not None:
        try:
            body = json.loads(rules if rules is not None else Path(str(file)).read_text())
        except ValueError as error:
            raise click.UsageError(f"rules: expected a JSON list, found something else ({error})") from None
        call("PUT", "faults", body, _faults)
    else:
        call("GET", "faults", None, _faults)


@appliance.command("power-cycle", cls=Remote)
@click.option("--keep/--lose", default=False, show_default=True, help="Keep the bytes (a battery), or lose them.")
@click.option("--seconds", type=float, default=0.0, show_default=True, help="Time without power.")
@click.pass_obj
def power_cycle(call: Call, keep: bool, seconds: float) -> None:
    """Switch the blade off and on again."""

    def show(answer: Any) -> str:
        lost = ", ".join(answer["lost"]) or "none"
        return f"power epoch {answer['power_epoch']}, regions lost: {'none' if keep else lost}"

    call("POST", "power-cycle", {"keep": keep, "seconds": seconds}, show)


@appliance.command(cls=Remote)
@click.pass_obj
def regions(call: Call) -> None:
    """List the regions as they really are: bytes promised, bytes that exist, hosts that may use them."""
    call("GET", "regions", None, _regions)


def _admin(
    url: str | None, port_file: Path | None, user: str | None, password_file: Path | None, tls_ca: Path | None
) -> Admin:
    try:
        where = url or (port_file.read_text().strip() if port_file else None)
        password = password_file.read_text().strip("\r\n") if password_file else None
    except OSError as error:
        raise click.ClickException(str(error)) from error
    if not where:
        raise click.UsageError("--url or --port-file: expected one of them, found none")
    return Admin(where.rstrip("/"), user, password, tls_ca)


def _hosts(answer: Any) -> str:
    rows = [(one["name"], one["uuid"], one["link"], one["cable"] or "none") for one in answer["hosts"]]
    return _table([("HOST", "SYSTEM UUID", "LINK", "CABLE"), *rows])


def _faults(answer: Any) -> str:
    rows = [
        (rule["fault"], rule["method"], rule["path"] or "any", str(rule["met"]), _left(rule["left"]))
        for rule in answer["faults"]
    ]
    return _table([("FAULT", "METHOD", "PATH", "MET", "LEFT"), *rows]) if rows else "no faults"


def _left(count: int | None) -> str:
    return "all" if count is None else str(count)


def _regions(answer: Any) -> str:
    rows = [
        (
            region["name"],
            format_bytes(region["bytes"]),
            format_bytes(region["resident_bytes"]),
            region["state"],
            ", ".join(f"{host['name']} ({host['access']})" for host in region["hosts"]) or "none",
        )
        for region in answer["regions"]
    ]
    books = (
        f"blade {answer['blade']}: {format_bytes(answer['free_bytes'])} free of "
        f"{format_bytes(answer['capacity_bytes'])}, {answer['media']}, coherence {answer['coherence']}, "
        f"power epoch {answer['power_epoch']}"
    )
    return "\n".join([books, *([_table([("REGION", "SIZE", "EXISTS", "STATE", "HOSTS"), *rows])] if rows else [])])


def _table(rows: Table) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)
