"""`hymcache-appliance`: the flags, read once into `Settings`."""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
from hymcache.crds import Coherence, Media
from hymcache.crds.quantity import parse_bytes
from hymcache.emulator.media.memfd import Allocate, PageSize
from hymcache.emulator.serve import serve
from hymcache.emulator.settings import AfterPowerLoss, Settings, SettingsError, host
from hymcache.emulator.store import StoreError
from hymcache.region.handover import HandoverError

DEFAULTS = Settings()
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


class Size(click.ParamType[int]):
    """A number of bytes, as Kubernetes writes quantities of memory: 1536Mi, 64Gi."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; fails naming the text."""
        try:
            return parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Mode(click.ParamType[int]):
    """A file mode in octal digits."""

    name = "mode"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The mode; fails naming the text."""
        try:
            return int(str(value), 8)
        except ValueError:
            self.fail(f"expected an octal mode such as 0750, found {value}", param, ctx)


def _choice(kind: type[StrEnum]) -> click.Choice[str]:
    return click.Choice([item.value for item in kind])


@click.command("run", context_settings={"auto_envvar_prefix": "HYMCACHE_APPLIANCE", "show_default": True})
@click.option("--blade", default=DEFAULTS.blade, help="Name of the blade.")
@click.option("--capacity", type=Size(), default="64Gi", help="Bytes that regions may have together.")
@click.option("--granule", type=Size(), default="1Gi", help="Region sizes are multiples of this.")
@click.option(
    "--media", type=click.Choice([Media.DRAM.value]), default=DEFAULTS.media.value, help="What the bytes are."
)
@click.option(
    "--coherence",
    type=_choice(Coherence),
    default=DEFAULTS.coherence.value,
    help="What hosts are told about coherence between them.",
)
@click.option("--max-hosts", type=int, default=DEFAULTS.hosts_max, help="Hosts that may use one region.")
@click.option("--max-regions", type=int, default=DEFAULTS.regions_max, help="Regions that the blade can carve.")
@click.option("--listen", default=DEFAULTS.listen, help="ADDRESS:PORT of the service; port 0 picks one.")
@click.option("--cable-dir", type=FOLDER, help="Folder of the hosts' sockets; none: no host gets memory.")
@click.option("--cable-mode", type=Mode(), default="0700", help="Mode of each host's folder of sockets.")
@click.option("--host", multiple=True, metavar="NAME=SYSTEM_UUID", help="A host with a cable; repeatable.")
@click.option("--user", help="User of the service; none: open, on loopback only.")
@click.option("--password-file", type=FILE, help="File with the user's password.")
@click.option("--state-dir", type=FOLDER, help="Folder that keeps the books over a restart.")
@click.option(
    "--allocate",
    type=_choice(Allocate),
    default=DEFAULTS.allocate.value,
    help="eager: pages are the appliance's, made at compose; sparse: sizes only.",
)
@click.option(
    "--page-size",
    type=_choice(PageSize),
    default=DEFAULTS.page_size.value,
    help="2Mi: pages of the kernel's pool, vm.nr_hugepages.",
)
@click.option("--reserve", type=Size(), default="1Gi", help="Memory that eager allocation leaves to the machine.")
@click.option(
    "--after-power-loss",
    type=_choice(AfterPowerLoss),
    default=DEFAULTS.after_power_loss.value,
    help="forget: regions are gone; empty: listed as before, over fresh zeros.",
)
@click.option("--port-file", type=FILE, help="File that gets the service's URL once it is ready.")
@click.option("--tls-cert", type=FILE, help="PEM certificate chain; with --tls-key, HTTPS only.")
@click.option("--tls-key", type=FILE, help="PEM private key.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", help="On stderr.")
@click.version_option(package_name="hymcache-emulator")
def run(log_level: str, **options: Any) -> None:
    """Run one memory appliance, that is one blade: Redfish service, admin API, memory, cables.

    Each flag can also be given as an environment variable, HYMCACHE_APPLIANCE_<FLAG>. Stop it with SIGTERM.
    """
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        asyncio.run(serve(settings(options)))
    except (SettingsError, StoreError, HandoverError, OSError) as error:
        raise click.ClickException(str(error)) from error


def settings(options: dict[str, Any]) -> Settings:
    """The flags as settings.

    Raises:
        SettingsError: flags that do not fit.
        OSError: the password file cannot be read.
    """
    password_file: Path | None = options["password_file"]
    return Settings(
        blade=options["blade"],
        capacity_bytes=options["capacity"],
        granule_bytes=options["granule"],
        media=Media(options["media"]),
        coherence=Coherence(options["coherence"]),
        hosts_max=options["max_hosts"],
        regions_max=options["max_regions"],
        allocate=Allocate(options["allocate"]),
        page_size=PageSize(options["page_size"]),
        reserve_bytes=options["reserve"],
        after_power_loss=AfterPowerLoss(options["after_power_loss"]),
        listen=options["listen"],
        cable_dir=options["cable_dir"],
        cable_mode=options["cable_mode"],
        hosts=tuple(_host(text) for text in options["host"]),
        user=options["user"],
        password=password_file.read_text().strip("\r\n") if password_file else None,
        state_dir=options["state_dir"],
        port_file=options["port_file"],
        tls_cert=options["tls_cert"],
        tls_key=options["tls_key"],
    )


def _host(text: str) -> Any:
    name, equals, uuid = text.partition("=")
    if not equals:
        raise SettingsError(f"--host: expected NAME=SYSTEM_UUID, found {text}")
    return host(name, uuid)
