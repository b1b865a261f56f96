"""Everything that has to run: an appliance, a region on it for two hosts, and a vLLM server on each host."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.models import Model, prepare
from engine.server import Server
from hymcache.crds.names import system_uuid_key
from hymcache.operator.fabric.port import HostKey
from hymcache.operator.fabric.redfish import RedfishFabric, RedfishSettings
from hymcache.region import Region

from controlplane.process import Process
from demo.settings import MIB, Settings

BLADE, REGION_NAME, HOSTS = "blade-1", "hymcache-demo", ("node-a", "node-b")
APPLIANCE_SECONDS = 60.0
SOCKET_PATH_MAX = 107  # sun_path of a unix socket

Say = Callable[[str], None]


@contextlib.contextmanager
def stage(settings: Settings, say: Say) -> Iterator[tuple[Server, Server]]:
    """Bring everything up, yield the two servers, and leave nothing behind however the body ends."""
    with contextlib.ExitStack() as cleanup:
        folder = _folder(settings, cleanup, say)
        say("preparing the model (a minute the first time)")
        model = prepare(Model.SMOLLM2)
        say(f"starting an appliance with {settings.region_mib} MiB of memory and cables to two hosts")
        uuids = {name: str(uuid.uuid4()) for name in HOSTS}
        endpoint, password = _appliance(settings, folder, uuids, cleanup)
        say("composing a region through its Redfish service and attaching both hosts")
        _compose(endpoint, password, settings.region_mib * MIB, list(uuids.values()))
        targets = {name: f"unix:{_cable(folder, key)}?region={REGION_NAME}" for name, key in uuids.items()}
        region_uuid = str(uuid.uuid4())
        Region.format(targets[HOSTS[0]], domains=len(HOSTS), uuid=region_uuid)
        say("starting a vLLM server on each host")
        servers = []
        for domain, name in enumerate(HOSTS):
            environ = {
                "HYMCACHE_REGION": targets[name],
                "HYMCACHE_REGION_UUID": region_uuid,
                "HYMCACHE_REGION_BYTES": str(settings.region_mib * MIB),
                "HYMCACHE_DOMAIN": str(domain),
                "HYMCACHE_COHERENCE": "software",
                "HYMCACHE_REQUIRED": "1",
            }
            server = Server(f"vllm-{name}", model, folder, environ=environ)
            cleanup.callback(server.stop)
            server.start()
            servers.append(server)
        for server in servers:
            server.wait_ready()
        yield servers[0], servers[1]


def _folder(settings: Settings, cleanup: contextlib.ExitStack, say: Say) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="hymcache-demo-"))
    if len(str(_cable(folder, "0" * 36))) > SOCKET_PATH_MAX:  # a deep TMPDIR leaves no room for a socket's path
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="hymcache-demo-", dir="/tmp"))
    if settings.keep:
        say(f"logs stay in {folder}")
    else:
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _cable(folder: Path, system_uuid: str) -> Path:
    return folder / "cables" / system_uuid / f"{BLADE}.sock"


def _appliance(
    settings: Settings, folder: Path, uuids: dict[str, str], cleanup: contextlib.ExitStack
) -> tuple[str, str]:
    password, port_file = secrets.token_urlsafe(24), folder / "appliance.url"
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    command = [str(Path(sys.executable).with_name("hymcache-appliance")), "--blade", BLADE]
    command += ["--capacity", f"{settings.region_mib}Mi", "--granule", "64Mi", "--cable-dir", str(folder / "cables")]
    command += ["--user", "demo", "--password-file", str(secret), "--port-file", str(port_file)]
    for name, key in uuids.items():
        command += ["--host", f"{name}={key}"]
    appliance = Process("appliance", command, folder / "appliance.log")
    cleanup.callback(appliance.stop)
    appliance.start()
    deadline = time.monotonic() + APPLIANCE_SECONDS
    while not port_file.exists() or not port_file.read_text().strip():
        appliance.require_running()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the appliance was not ready within {APPLIANCE_SECONDS:.0f} s:\n{appliance.tail()}")
        time.sleep(0.05)
    return port_file.read_text().strip(), password


def _compose(endpoint: str, password: str, size: int, system_uuids: list[str]) -> None:
    async def compose() -> None:
        service = RedfishSettings(endpoint=endpoint, username="demo", password=password, emulated=True)
        fabric = RedfishFabric(service)
        try:
            region = await fabric.compose(REGION_NAME, size, BLADE)
            for key in system_uuids:
                await fabric.attach(region, HostKey(system_uuid_key(key)))
        finally:
            await fabric.close()

    asyncio.run(compose())
