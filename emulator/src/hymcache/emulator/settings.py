"""Every setting of an appliance, read once at start: meaning, unit, reason for the default, how to turn it off."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from uuid import UUID

from hymcache.crds import Coherence, Media
from hymcache.emulator.media.memfd import HUGE_BYTES, Allocate, PageSize
from hymcache.emulator.model import Host, HostName

GIB = 1 << 30
REGIONS_LIMIT = (1 << 16) - 1  # a GCXLID has four hexadecimal digits for the logical device; 0 is the pool
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
LOOPBACK = ("127.", "localhost", "::1", "[::1]")


class AfterPowerLoss(StrEnum):
    """What the books say about regions whose bytes a power loss took."""

    FORGET = "forget"
    EMPTY = "empty"


class SettingsError(ValueError):
    """A setting, or two of them together, that no appliance can run with."""


@dataclass(frozen=True)
class Settings:
    """One appliance, that is one blade. Sizes are bytes.

    Raises:
        SettingsError: naming the option, what was expected and what was found.
    """

    blade: str = "blade-1"
    """Name of the blade: part of Redfish addresses, socket names and GCXLIDs. Letters, digits, `.`, `_`, `-`."""
    capacity_bytes: int = 64 * GIB
    """Bytes that regions may have together. The accounting refuses more; see `allocate` for what exists of them."""
    granule_bytes: int = GIB
    """Every region's size is a multiple of this: 1 GiB, as capacity of pooled devices is commonly carved."""
    media: Media = Media.DRAM
    """What the bytes are made of. Only `dram`."""
    coherence: Coherence = Coherence.SOFTWARE
    """What hosts are told about coherence between them: `software`, unless the deployment knows better."""
    hosts_max: int = 16
    """Hosts that may use one region: 16, as many logical devices as a CXL 2.0 multi-logical device has."""
    regions_max: int = 1024
    """Regions that the blade can carve, whatever their size; real ones are limited by their decoders."""
    allocate: Allocate = Allocate.EAGER
    """`eager`: the appliance allocates a region's pages at compose, so that no pod is charged for them.
    `sparse`: sizes only, for tests of accounting larger than the machine; whoever touches a page pays for it."""
    page_size: PageSize = PageSize.BASE
    """`base`: 4 KiB pages. `2Mi`: pages of the kernel's pool (vm.nr_hugepages), which must hold all regions."""
    reserve_bytes: int = GIB
    """Memory that eager allocation leaves to the rest of the machine; 0 turns the guard off."""
    after_power_loss: AfterPowerLoss = AfterPowerLoss.FORGET
    """After a restart or a power cycle: `forget` = regions and connections are gone, as where blades are carved at
    run time; `empty` = both are listed as before, over fresh zeros, as where the carving is kept in flash."""
    listen: str = "127.0.0.1:0"
    """Address and port of the Redfish service and the admin API; port 0 picks a free one. Loopback by default."""
    cable_dir: Path | None = None
    """Folder of the cables: `<cable_dir>/<system uuid>/<blade>.sock` per host. None: no host gets memory."""
    cable_mode: int = 0o700
    """Mode of each host's folder of sockets, which is the access control: whoever may enter it is that host. 0700 fits
    a node plugin that runs as the appliance's user; 0750 one that shares its group."""
    hosts: tuple[Host, ...] = ()
    """Hosts that are cabled from the start; the admin API adds and removes others."""
    user: str | None = None
    """User of the service. None, with `password` None: no credentials asked, on loopback only."""
    password: str | None = field(default=None, repr=False)
    """Password of `user`; read from a file, never logged."""
    state_dir: Path | None = None
    """Folder that keeps the books over a restart. None: a restart begins with a new blade."""
    port_file: Path | None = None
    """File that gets the service's URL once it is ready, and goes when it stops. None: no file."""
    tls_cert: Path | None = None
    """PEM certificate chain; with `tls_key`, the service speaks HTTPS only. None: plain HTTP."""
    tls_key: Path | None = None
    """PEM private key of `tls_cert`."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.blade):
            raise _bad("--blade", "1 to 63 letters, digits, dots, underscores or dashes", self.blade)
        if self.media is not Media.DRAM:
            raise _bad("--media", Media.DRAM.value, self.media.value)
        self._check_sizes()
        self._check_access()
        self._check_hosts()

    @property
    def address(self) -> tuple[str, int]:
        """`listen` as host and port."""
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise _bad("--listen", "ADDRESS:PORT", self.listen)
        return host.strip("[]"), int(port)

    def _check_sizes(self) -> None:
        if self.granule_bytes <= 0 or self.granule_bytes % (1 << 20):
            raise _bad("--granule", "a positive multiple of 1Mi", self.granule_bytes)
        if self.capacity_bytes < self.granule_bytes or self.capacity_bytes % self.granule_bytes:
            raise _bad("--capacity", f"a positive multiple of the granule of {self.granule_bytes}", self.capacity_bytes)
        if self.hosts_max < 1:
            raise _bad("--max-hosts", "at least 1", self.hosts_max)
        if not 1 <= self.regions_max <= REGIONS_LIMIT:
            raise _bad("--max-regions", f"1 to {REGIONS_LIMIT}", self.regions_max)
        if self.page_size is PageSize.HUGE and self.allocate is Allocate.SPARSE:
            raise _bad("--page-size", "base with --allocate sparse", self.page_size.value)
        if self.page_size is PageSize.HUGE and self.granule_bytes % HUGE_BYTES:
            raise _bad("--granule", "a multiple of 2Mi with --page-size 2Mi", self.granule_bytes)
        if self.reserve_bytes < 0:
            raise _bad("--reserve", "0 or more", self.reserve_bytes)

    def _check_hosts(self) -> None:
        if self.cable_mode & ~0o777 or self.cable_mode & 0o700 != 0o700:
            raise _bad(
                "--cable-mode", "an octal mode that lets the appliance's user in, such as 0700", oct(self.cable_mode)
            )
        seen: set[object] = set()
        for host in self.hosts:
            for key in (host.name, host.key):
                if key in seen:
                    raise _bad("--host", "each name and each UUID once", f"{host.name}={host.uuid}")
                seen.add(key)

    def _check_access(self) -> None:
        _ = self.address
        if (self.user is None) != (self.password is None):
            raise _bad("--user and --password-file", "both or none", "one of them")
        if self.user is None and not self.listen.startswith(LOOPBACK):
            raise _bad("--user", "credentials where the service listens beyond loopback", f"none on {self.listen}")
        if self.user is not None and (not self.user or ":" in self.user or not self.password):
            raise _bad("--user", "a user without colon and a password that is not empty", "something else")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise _bad("--tls-cert and --tls-key", "both or none", "one of them")


def host(name: str, uuid: str) -> Host:
    """A host from text.

    Raises:
        SettingsError: the name is not usable in an address, or the UUID is none.
    """
    if not NAME.fullmatch(name):
        raise _bad("host name", "1 to 63 letters, digits, dots, underscores or dashes", name)
    try:
        UUID(uuid)
    except ValueError:
        raise _bad(f"system UUID of host {name}", "a UUID", uuid) from None
    if not re.fullmatch(r"[0-9A-Fa-f-]+", uuid):
        raise _bad(f"system UUID of host {name}", "hexadecimal digits and dashes alone", uuid)
    return Host(HostName(name), uuid)


def _bad(option: str, expected: str, found: object) -> SettingsError:
    return SettingsError(f"{option}: expected {expected}, found {found}")
