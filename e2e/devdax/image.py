"""The guest's first file system: Debian's busybox and Python, CXL's modules, HyMCache as it is installed here."""

from __future__ import annotations

import compileall
import gzip
import importlib.metadata
import lzma
import os
import py_compile
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

HERE = Path(__file__).parent
DISTRIBUTIONS = ("hymcache-cli", "pytest", "pytest-timeout")
MODULES = ("cxl_acpi", "cxl_pci", "cxl_mem", "dax_cxl", "device_dax")
"""kmem is left out: it would put the kernel's own pages into the region."""
LEFT_OUT = re.compile(
    r"usr/(share|sbin|lib/systemd)/|var/|etc/|usr/bin/(?!python3)|.*/(test|idlelib|tkinter|__pycache__)/"
)
_ALIGN = 4


def build(packages: Path, work: Path) -> None:
    """Write `work/image.gz` from the roots that `packages.py` made."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        root = Path(folder)
        _userland(packages / "userland", root)
        _modules(packages / "kernel", root / "modules")
        _site(root / "site")
        shutil.copytree(HERE / "inside", root, dirs_exist_ok=True)
        _compile(root)
        with gzip.open(work / "image.gz", "wb", compresslevel=1) as out:
            out.writelines(_newc(root))


def _userland(source: Path, root: Path) -> None:
    for name in ("proc", "sys", "dev", "tmp", "run"):
        (root / name).mkdir(parents=True)
    for path in sorted(source.rglob("*")):
        name = str(path.relative_to(source))
        if LEFT_OUT.match(name + "/" if path.is_dir() else name):
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            (root / name).symlink_to(path.readlink())
        elif path.is_file():
            shutil.copy2(path, root / name)


def _modules(source: Path, target: Path) -> None:
    """Unpacked modules, and the file `order`: each after those it depends on."""
    target.mkdir()
    known = {path.name.partition(".ko")[0].replace("-", "_"): path for path in source.rglob("*.ko*")}
    order: list[str] = []

    def add(name: str) -> None:
        path = known.get(name.replace("-", "_"))
        if path is None or f"{name}.ko" in order:
            return  # built into the kernel
        content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        for needed in re.findall(rb"\0depends=([^\0]+)\0", b"\0" + content):
            for one in needed.decode().split(","):
                add(one)
        (target / f"{name}.ko").write_bytes(content)
        order.append(f"{name}.ko")

    for name in MODULES:
        add(name)
    (target / "order").write_text("".join(f"{name}\n" for name in order))


def _site(target: Path) -> None:
    """The distributions and what they need, without their tests. Ours lie in source trees that .pth files name."""
    for distribution in _closure(DISTRIBUTIONS):
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            if file.suffix == ".pth":
                for folder in map(Path, source.read_text().split()):
                    if folder.is_dir():
                        shutil.copytree(folder, target, dirs_exist_ok=True)
                continue
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / file)


def _compile(root: Path) -> None:
    """Byte code beside the sources: an emulated CPU compiles for seconds what is imported in one."""
    unused = re.compile(r"/(lexers|styles|lib2to3|ensurepip|distutils|unittest|pydoc_data)/|/python3/")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for folder in (root, root / "site", root / "usr/lib/python3.11"):
        levels = 0 if folder == root else 10
        compileall.compile_dir(folder, maxlevels=levels, quiet=2, rx=unused, invalidation_mode=mode)


def _closure(names: tuple[str, ...]) -> Iterator[importlib.metadata.Distribution]:
    seen: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        distribution = importlib.metadata.distribution(name)
        wanted = map(Requirement, distribution.requires or ())
        left += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
        yield distribution


def _newc(root: Path) -> Iterator[bytes]:
    """The tree as an archive that the kernel unpacks (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    for number, path in enumerate(sorted(root.rglob("*")), 1):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            content = os.fsencode(path.readlink())
        else:
            content = path.read_bytes() if path.is_file() else b""
        yield from _record(number, found.st_mode, str(path.relative_to(root)), content)
    yield from _record(0, 0, "TRAILER!!!", b"")


def _record(number: int, mode: int, name: str, content: bytes) -> Iterator[bytes]:
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(os.fsencode(name)) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + os.fsencode(name) + b"\0"
    for part in (head, content):
        yield part + bytes(-len(part) % _ALIGN)
