"""A guest with a CXL memory device: QEMU without KVM, Debian's kernel, a shell behind a serial line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

READY = b"@@ready\n"
BOOT_SECONDS = 300


class GuestError(RuntimeError):
    """The guest did not start, died or does not answer."""


class Guest:
    """One virtual machine whose CXL memory is the file `memory` of `size_mib`. Guests that name the same file share it.

    The hypervisor's CPUID bit is hidden: with it the kernel refuses to set a region up, as it may not flush caches then
    (drivers/cxl/core/region.c, cxl_region_invalidate_memregion).
    """

    def __init__(self, name: str, work: Path, packages: Path, *, memory: Path, size_mib: int) -> None:
        self.name = name
        self._work = work / name
        self._packages = packages
        self._memory = memory
        self._size_mib = size_mib
        self._received = b""
        self._echo = False

    def __enter__(self) -> Self:
        self._work.mkdir(parents=True)
        root = self._packages / "qemu"
        libraries = f"{root}/usr/lib/x86_64-linux-gnu:{root}/lib/x86_64-linux-gnu"
        with (self._work / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(root), env={**os.environ, "LD_LIBRARY_PATH": libraries},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            self._line = self._connect()
            self._until(READY, BOOT_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def run(self, command: str, timeout: float = 120, *, echo: bool = False) -> tuple[int, str]:
        """Exit status and output of one shell command, shown as it comes with `echo`.

        Raises:
            GuestError: it did not end in `timeout` seconds.
        """
        self._echo = echo
        self._line.sendall(command.encode() + b"\n")
        output = self._until(b"@@", timeout)
        self._echo = False
        status = self._until(b"@@\n", 5)
        return int(status.removesuffix(b"@@\n")), output.removesuffix(b"@@").decode(errors="replace")

    def console(self) -> str:
        """What the kernel wrote."""
        return (self._work / "console.log").read_text(errors="replace")

    def _command(self, root: Path) -> list[str]:
        memory = f"memory-backend-file,id=cxl-memory,share=on,mem-path={self._memory},size={self._size_mib}M"
        kernel = next((self._packages / "kernel/boot").glob("vmlinuz-*"))
        return [
            f"{root}/usr/bin/qemu-system-x86_64",
            *("-L", f"{root}/usr/share/qemu", "-L", f"{root}/usr/share/seabios"),
            *("-machine", "q35,cxl=on", "-accel", "tcg,thread=multi", "-cpu", "max,-hypervisor", "-smp", "2"),
            *("-m", "1G,maxmem=16G,slots=4", "-nic", "none", "-display", "none", "-no-reboot"),
            *("-kernel", str(kernel), "-initrd", str(self._work.parent / "image.gz")),
            *("-append", "console=ttyS0 panic=1 loglevel=6"),
            *("-serial", f"file:{self._work}/console.log"),
            *("-serial", f"unix:{self._work}/line.sock,server=on,wait=off"),
            *("-object", memory),
            *("-device", "pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1"),
            *("-machine", "cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G"),
            *("-device", "cxl-rp,port=0,bus=cxl.1,id=port0,chassis=0,slot=2"),
            *("-device", "cxl-type3,bus=port0,id=device0,sn=0x1234,volatile-memdev=cxl-memory"),
        ]

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + 20
        while True:
            line = socket.socket(socket.AF_UNIX)
            try:
                line.connect(str(self._work / "line.sock"))
            except OSError:
                line.close()
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise self._error("QEMU does not answer") from None
                time.sleep(0.1)
            else:
                return line

    def _until(self, mark: bytes, timeout: float) -> bytes:
        """What the guest sends up to and with `mark`; carriage returns left out."""
        deadline = time.monotonic() + timeout
        while mark not in self._received:
            self._line.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                some = self._line.recv(65536)
            except TimeoutError:
                raise self._error(f"expected {mark!r} within {timeout:.0f} s") from None
            if not some:
                raise self._error("the guest is gone")
            self._received += some.replace(b"\r", b"")
            if self._echo:
                sys.stdout.write(some.decode(errors="replace"))
                sys.stdout.flush()
        found, _, self._received = self._received.partition(mark)
        return found + mark

    def _error(self, what: str) -> GuestError:
        log = (self._work / "qemu.log").read_text(errors="replace")
        console = self.console()[-2000:] if (self._work / "console.log").exists() else ""
        return GuestError(f"guest {self.name}: {what}; received {self._received[-500:]!r}\n{log}\n{console}")
