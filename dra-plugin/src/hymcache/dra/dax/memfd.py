"""`memfd`: the appliance hands the region's descriptor over its cable socket, the plugin hands it on to the pods.

A memfd cannot be bind-mounted (mount(2) answers EINVAL), so a pod gets a folder with a socket that answers with the
descriptor. The folder is mounted, not the socket: a mounted socket file is dead once its server was restarted.

    <cable_dir>/<blade>.sock            the cable; whoever connects there is this host
    <plugin_dir>/pods/<share>/region.sock   mounted read-only at /run/hymcache, mode 0666 for pods that are not root
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hymcache.crds import Coherence
from hymcache.dra.cdi import Edits
from hymcache.dra.dax import MOUNT, Port
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.keys import ShareKey
from hymcache.dra.plan import Wanted
from hymcache.region import handover
from hymcache.region.handover import HandoverError, Server

SOCKET: Final = "region.sock"


@dataclass
class _Held:
    """An open region. `descriptor` is None while it is withdrawn; `server` exists once it was published."""

    wanted: Wanted
    media: str
    descriptor: int | None
    server: Server | None = None


class Memfd:
    """See `Dax`."""

    def __init__(self, *, cable_dir: Path, pods_dir: Path, host: str, generation: str, timeout_seconds: float) -> None:
        self._host = host
        self._cables = cable_dir
        self._pods = pods_dir
        self._generation = generation
        self._timeout = timeout_seconds
        self._held: dict[ShareKey, _Held] = {}
        self._lock = threading.Lock()
        pods_dir.mkdir(parents=True, exist_ok=True)

    def ports(self) -> list[Port]:
        """See `Dax`."""
        found = sorted(self._cables.glob("*.sock")) if self._cables.is_dir() else []
        with ThreadPoolExecutor(max(1, len(found)), thread_name_prefix="cable") as pool:
            return list(pool.map(self._port, found))

    def _port(self, path: Path) -> Port:
        blade = path.name.removesuffix(".sock")
        try:
            reply = handover.request(path, {"op": "hello"}, timeout=self._timeout)
        except HandoverError as error:
            return Port(blade, up=False, message=f"{error.code}: {error}")
        host, power = reply.get("host"), reply.get("power_epoch")
        return Port(
            blade,
            up=True,
            message="",
            host=host if isinstance(host, str) else None,
            power_epoch=power if isinstance(power, int) else None,
        )

    def open(self, key: ShareKey, wanted: Wanted) -> int:
        """See `Dax`."""
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.descriptor is not None and _same_memory(held.wanted, wanted):
                held.wanted = wanted
                return held.descriptor
        descriptor, media = self._receive(wanted)
        with self._lock:
            held = self._held.setdefault(key, _Held(wanted, media, None))
            if held.descriptor is not None:
                os.close(held.descriptor)
            held.wanted, held.media, held.descriptor = wanted, media, descriptor
        return descriptor

    def _receive(self, wanted: Wanted) -> tuple[int, str]:
        path = self._cables / f"{wanted.blade}.sock"
        try:
            descriptor, reply = handover.receive(path, region=wanted.fabric_region, timeout=self._timeout)
        except HandoverError as error:
            raise ClaimError(
                Kind.FABRIC, f"blade {wanted.blade} did not hand over {wanted.fabric_region} ({error.code}): {error}"
            ) from error
        try:
            _check(descriptor, reply, wanted)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, str(reply.get("media", "dram"))

    def publish(self, key: ShareKey) -> bool:
        """See `Dax`."""
        folder = self._pods / key.folder
        with self._lock:
            held = self._held[key]
        if held.server is not None and _answers(folder / SOCKET):
            return False
        folder.mkdir(mode=0o755, exist_ok=True)
        folder.chmod(0o755)  # whatever the umask: pods that are not root must reach the socket
        if held.server is not None:
            held.server.close()
        # Bound under a name of this generation, then renamed over the pods' name: the other generation's socket is
        # replaced without a moment in which none is there, and neither removes the other's when it closes.
        staged = folder / f".{self._generation}.sock"
        staged.unlink(missing_ok=True)
        server = Server(staged, lambda request: self._answer(key, request), mode=0o666)
        staged.rename(folder / SOCKET)
        with self._lock:
            held.server = server
        return True

    def is_open(self, key: ShareKey, wanted: Wanted) -> bool:
        """See `Dax`."""
        with self._lock:
            held = self._held.get(key)
            return held is not None and held.descriptor is not None and _same_memory(held.wanted, wanted)

    def edits(self, key: ShareKey, wanted: Wanted) -> Edits:
        """See `Dax`."""
        return Edits(
            env={
                "HYMCACHE_REGION": f"unix:{MOUNT}/{SOCKET}",
                "HYMCACHE_REGION_UUID": wanted.uuid,
                "HYMCACHE_REGION_BYTES": str(wanted.region_bytes),
                "HYMCACHE_DOMAIN": str(wanted.domain),
                "HYMCACHE_HOST": self._host,  # owner of the domain: a reboot does not change it
                "HYMCACHE_COHERENCE": wanted.coherence.value,
            },
            mounts={self._pods / key.folder: MOUNT},
        )

    def withdraw(self, key: ShareKey) -> None:
        """See `Dax`."""
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.descriptor is not None:
                os.close(held.descriptor)
                held.descriptor = None

    def close(self, key: ShareKey) -> None:
        """See `Dax`."""
        self.withdraw(key)
        with self._lock:
            held = self._held.pop(key, None)
        if held is not None and held.server is not None:
            held.server.close()
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._pods / key.folder)

    def sweep(self, known: Callable[[], Iterable[ShareKey]]) -> int:
        """See `Dax`."""
        found = list(self._pods.iterdir())
        with self._lock:
            held = list(self._held)
        keys = set(known())
        for key in held:
            if key not in keys:  # the other plugin generation released it
                self.close(key)
        folders = {key.folder for key in keys}
        stale = [folder for folder in found if folder.name not in folders]
        for folder in stale:
            shutil.rmtree(folder, ignore_errors=True)
        return len(stale)

    def stop(self) -> None:
        """See `Dax`."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        for region in held:
            if region.server is not None:
                region.server.close()
            if region.descriptor is not None:
                os.close(region.descriptor)

    def _answer(self, key: ShareKey, request: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
        """Serve one request of a pod."""
        with self._lock:
            held = self._held.get(key)
            if held is None or held.descriptor is None:
                raise HandoverError(
                    "link-down", "the region is not attached to this node now; its CXLRegion says why; try again later"
                )
            known = {"region": held.wanted.fabric_region, "bytes": held.wanted.region_bytes}
            known["access"] = "rw" if held.wanted.writable else "ro"
            if request["op"] == "list":
                return {"ok": True, "regions": [known]}, None
            if request["op"] != "open":
                raise HandoverError("bad-request", f"expected op open or list, found {request['op']!r}")
            if request.get("region", held.wanted.fabric_region) != held.wanted.fabric_region:
                raise HandoverError("no-such-region", f"this socket serves {held.wanted.fabric_region} alone")
            reply = {"ok": True, **known, "coherence": held.wanted.coherence.value, "media": held.media}
            return reply, _duplicate(held.descriptor, writable=held.wanted.writable)


def _same_memory(one: Wanted, other: Wanted) -> bool:
    return (one.blade, one.fabric_region, one.uuid, one.epoch, one.region_bytes) == (
        other.blade,
        other.fabric_region,
        other.uuid,
        other.epoch,
        other.region_bytes,
    )


def _check(descriptor: int, reply: dict[str, Any], wanted: Wanted) -> None:
    """Refuse what is not the memory that was composed.

    An unsealed memfd could be shrunk by any pod, and every other mapping of it would fault.
    """
    found_bytes = os.fstat(descriptor).st_size
    try:
        sealed = bool(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
    except OSError:
        sealed = False  # not a memfd
    for what, expected, found in (
        ("size in bytes", wanted.region_bytes, found_bytes),
        ("region", wanted.fabric_region, reply.get("region")),
        ("sealed against shrinking", True, sealed),
        ("access", "rw" if wanted.writable or wanted.init else reply.get("access"), reply.get("access")),
    ):
        if expected != found:
            raise ClaimError(
                Kind.FABRIC,
                f"blade {wanted.blade} handed over another memory than {wanted.fabric_region}: {what}: expected "
                f"{expected}, found {found}; check the fabric manager",
            )
    if wanted.coherence is Coherence.HARDWARE and reply.get("coherence") != Coherence.HARDWARE:
        raise ClaimError(
            Kind.FABRIC,
            f"region {wanted.fabric_region} is declared coherence hardware, its cable says {reply.get('coherence')}; "
            f"declare software on the CXLFabric",
        )


def _duplicate(descriptor: int, *, writable: bool) -> int:
    """A descriptor to give away.

    A read-only one keeps honest software from writing. It is no wall between tenants, since a process may open
    /proc/self/fd anew: one region is one trust domain.
    """
    if writable:
        return os.dup(descriptor)
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)


def _answers(path: Path) -> bool:
    try:
        handover.request(path, {"op": "list"}, timeout=1.0)
    except HandoverError as error:
        return error.code != "unreachable"
    return True
