"""Memory appliances as processes: started, broken and asked through their admin API."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from controlplane.process import Process
from controlplane.waiting import wait

USER, PASSWORD = "operator", "correct horse battery staple"


class Appliance:
    """One `hymcache-appliance`: one blade. A context manager.

    Args:
        folder: everything it writes.
        blade: its name.
        hosts: system UUID by host name; each gets a cable.
        options: further flags by name, for example `capacity="64Gi"`.
    """

    def __init__(self, folder: Path, blade: str, hosts: Mapping[str, str], **options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.blade = blade
        self.cables = folder / "cables"
        self._port_file = folder / "url"
        password = folder / "password"
        password.write_text(PASSWORD)
        flags = {
            "blade": blade,
            "capacity": "64Gi",
            "allocate": "sparse",
            "reserve": "0",
            "cable-dir": str(self.cables),
            "state-dir": str(folder / "state"),
            "port-file": str(self._port_file),
            "user": USER,
            "password-file": str(password),
            **{name.replace("_", "-"): value for name, value in options.items()},
        }
        argv = [f"--{name}={value}" for name, value in flags.items()]
        argv += [f"--host={name}={uuid}" for name, uuid in hosts.items()]
        log = folder / f"appliance-{blade}.log"
        self.process = Process(f"appliance-{blade}", argv, log, entry="hymcache.emulator.command:run")
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()  # its memory goes with it

    def start(self) -> None:
        """Start it, or start it again: then it listens on another port, so that a fabric has to be told."""
        self._port_file.unlink(missing_ok=True)
        self.process.start()

        def url() -> str:
            self.process.require_running()
            return self._port_file.read_text().strip() if self._port_file.exists() else ""

        self.url = wait(f"appliance {self.blade} to listen", url)

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """One call of the admin API; its JSON answer."""
        request = urllib.request.Request(
            f"{self.url}/admin/v1/{path}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Content-Type": "application/json"},
        )
        passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
        passwords.add_password(None, self.url, USER, PASSWORD, is_authenticated=True)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
        with opener.open(request, timeout=30) as reply:
            raw = reply.read()
        return json.loads(raw) if raw else None

    def faults(self, *rules: Mapping[str, Any]) -> None:
        """Put these faults in place of all others."""
        self.admin("PUT", "faults", list(rules))

    def regions(self) -> list[dict[str, Any]]:
        """The regions as they really are, past every fault."""
        found: list[dict[str, Any]] = self.admin("GET", "regions")["regions"]
        return found
