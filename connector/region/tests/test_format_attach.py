"""What format and attach accept, refuse, and leave alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hymcache.region import HandoverError, Region, RegionError
from hymcache.region.handover import Server

MIB = 1 << 20
FINGERPRINT = bytes(range(32))
UUID = "01234567-89ab-cdef-0123-456789abcdef"


def kind_of(call: object) -> str:
    with pytest.raises(RegionError) as caught:
        call()  # type: ignore[operator]
    assert str(caught.value).count(";") >= 1 or caught.value.kind == "io", (
        f"says nothing about what to do: {caught.value}"
    )
    return caught.value.kind


def test_format_reports_what_it_wrote(medium: Path) -> None:
    info = Region.format(medium, size=64 * MIB, chunk_bytes=1 * MIB, domains=2, uuid=UUID, coherence="hardware")
    assert (info.uuid, info.epoch, info.bytes, info.chunk_bytes, info.domains) == (UUID, 1, 64 * MIB, 1 * MIB, 2)
    assert info.coherence == "hardware"
    assert info.chunks * info.chunk_bytes + info.metadata_bytes <= info.bytes
    assert info.chunks >= 56
    with Region.attach(medium, domain=1) as region:
        attached = region.info()
    assert attached.domain == 1
    assert (attached.uuid, attached.chunks, attached.objects) == (info.uuid, info.chunks, info.objects)


def test_attach_never_formats(medium: Path) -> None:
    medium.write_bytes(bytes(MIB))
    assert kind_of(lambda: Region.attach(medium)) == "unformatted"
    assert medium.read_bytes() == bytes(MIB)
    medium.write_bytes(b"")
    assert kind_of(lambda: Region.attach(medium)) == "unformatted"
    with pytest.raises(RegionError, match="No such file"):
        Region.attach(medium.with_name("absent"))
    assert not medium.with_name("absent").exists()


@pytest.mark.parametrize("content", [b"\x7fELF" + bytes(MIB), bytes(1024) + b"\x53\xef" + bytes(MIB), b"short"])
def test_a_foreign_file_is_refused_and_untouched(medium: Path, content: bytes) -> None:
    medium.write_bytes(content)
    if content[:4] == b"\x7fELF" or len(content) < 4096:
        assert kind_of(lambda: Region.attach(medium)) == "foreign"
    assert kind_of(lambda: Region.format(medium, size=32 * MIB)) == "foreign"
    assert medium.read_bytes() == content


def test_a_truncated_region_is_refused_and_untouched(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    os.truncate(medium, 16 * MIB)
    before = medium.read_bytes()
    with pytest.raises(
        RegionError, match=f"expected {32 * MIB} bytes as its superblock says, found {16 * MIB}"
    ) as caught:
        Region.attach(medium)
    assert caught.value.kind == "truncated"
    assert medium.read_bytes() == before


def test_a_region_of_another_uuid_or_epoch_is_refused_by_name(medium: Path) -> None:
    Region.format(medium, size=32 * MIB, uuid=UUID, epoch=7)
    other = UUID.replace("0", "f")
    with pytest.raises(RegionError, match=f"expected region {other}, found {UUID}") as caught:
        Region.attach(medium, uuid=other)
    assert caught.value.kind == "wrong-uuid"
    with pytest.raises(RegionError, match="expected epoch 6, found 7") as caught:
        Region.attach(medium, epoch=6)
    assert caught.value.kind == "wrong-epoch"
    Region.attach(medium, uuid=UUID, epoch=7).close()


def flip(medium: Path, at: int, mask: int = 0xFF) -> None:
    with medium.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ mask]))


def test_a_torn_superblock_is_refused(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    flip(medium, 64)
    assert kind_of(lambda: Region.attach(medium)) == "torn"


def poke(medium: Path, at: int, data: bytes) -> None:
    with medium.open("r+b") as file:
        file.seek(at)
        file.write(data)


def poke_sealed(medium: Path, at: int, data: bytes) -> None:
    """As if another release had formatted it: with a checksum that fits."""
    poke(medium, at, data)
    poke(medium, 252, crc32c(medium.read_bytes()[:252]).to_bytes(4, "little"))


@pytest.mark.parametrize(
    ("at", "data"),
    [
        pytest.param(8, b"\2", id="version"),
        pytest.param(24, b"\1", id="first incompat bit"),
        pytest.param(31, b"\x80", id="last incompat bit"),
    ],
)
def test_a_newer_region_is_refused_and_not_replaced(medium: Path, at: int, data: bytes) -> None:
    Region.format(medium, size=32 * MIB)
    poke_sealed(medium, at, data)
    before = medium.read_bytes()
    for read_only in (False, True):
        assert kind_of(lambda read_only=read_only: Region.attach(medium, read_only=read_only)) == "newer"
    assert kind_of(lambda: Region.format(medium, replaces=1)) == "newer"
    assert medium.read_bytes() == before


def test_a_region_with_features_that_only_its_writers_must_know_can_be_read_and_not_written(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    with Region.attach(medium) as region:
        assert region.namespace(bytes(32)).put(b"key", b"x" * 64)
    poke_sealed(medium, 39, b"\x80")
    before = medium.read_bytes()
    with pytest.raises(RegionError, match="unknown features 0x8000000000000000; attach it read-only") as caught:
        Region.attach(medium)
    assert caught.value.kind == "newer"
    with Region.attach(medium, read_only=True) as region:
        got = bytearray(64)
        assert region.namespace(bytes(32)).get_into(b"key", got) == 64
        assert got == b"x" * 64
    assert medium.read_bytes() == before


def test_a_region_with_features_that_nobody_must_know_is_used(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    poke_sealed(medium, 16, b"\xff" * 8)
    with Region.attach(medium) as region:
        assert region.namespace(bytes(32)).put(b"key", b"x" * 64)


def test_a_region_of_the_draft_layout_is_named_and_replaced_only_by_its_epoch(medium: Path) -> None:
    Region.format(medium, size=32 * MIB, epoch=5)
    poke(medium, 24, b"\1")
    poke_sealed(medium, 8, b"\0")
    before = medium.read_bytes()
    with pytest.raises(RegionError, match="expected layout version 1, found version 0") as caught:
        Region.attach(medium, read_only=True)
    assert caught.value.kind == "older"
    with pytest.raises(RegionError, match="holds a region of an older layout of epoch 5") as caught:
        Region.format(medium, replaces=4)
    assert caught.value.kind == "exists"
    assert medium.read_bytes() == before
    assert Region.format(medium, replaces=5).epoch == 6
    Region.attach(medium, epoch=6).close()


@pytest.mark.parametrize("sealed", [True, False])
def test_a_half_finished_format_is_said_and_can_be_resumed(medium: Path, sealed: bool) -> None:
    Region.format(medium, size=32 * MIB, uuid=UUID, epoch=3)
    poke(medium, 12, b"\1")
    if sealed:
        poke(medium, 252, crc32c(medium.read_bytes()[:252]).to_bytes(4, "little"))
    assert kind_of(lambda: Region.attach(medium)) == "formatting"
    assert kind_of(lambda: Region.format(medium)) == "exists"
    assert Region.format(medium, uuid=UUID, epoch=3).epoch == 3
    Region.attach(medium, epoch=3).close()


def test_a_format_that_died_at_its_first_store_is_begun_again(medium: Path) -> None:
    medium.write_bytes(bytes(32 * MIB))
    poke(medium, 0, b"HYMCACHE" + bytes(4) + b"\1")
    assert kind_of(lambda: Region.attach(medium)) == "formatting"
    assert Region.format(medium).epoch == 1


def test_whoever_looks_during_a_format_finds_it_under_way(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    seen: set[str] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                Region.attach(medium, read_only=True, populate=False).close()
            except RegionError as error:
                seen.add(error.kind)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for epoch in range(1, 30):
        Region.format(medium, replaces=epoch)
    stop.set()
    for thread in threads:
        thread.join()
    assert seen <= {"formatting"}


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_format_replaces_only_the_epoch_it_names(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    with Region.attach(medium) as region:
        region.namespace(FINGERPRINT).put(b"k", b"x")
    assert kind_of(lambda: Region.format(medium)) == "exists"
    assert kind_of(lambda: Region.format(medium, replaces=2)) == "exists"
    with pytest.raises(ValueError, match="epoch"):
        Region.format(medium, replaces=1, epoch=1)
    assert Region.format(medium, replaces=1).epoch == 2
    with Region.attach(medium) as region:
        assert region.namespace(FINGERPRINT).lookup([b"k"]) == 0


def test_format_waits_for_nobody_it_would_hurt(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    with Region.attach(medium):
        assert kind_of(lambda: Region.format(medium, replaces=1)) == "busy"
    Region.format(medium, replaces=1)


def dirty(medium: Path) -> None:
    """Memory as another owner leaves it: a region of theirs, and bytes of theirs everywhere behind it."""
    Region.format(medium, size=32 * MIB)
    with medium.open("r+b") as file:
        file.seek(4096)
        file.write(b"another owner's " * ((32 * MIB - 4096) // 16))


@pytest.mark.parametrize("head", [b"", b"\x7fELF", b"HYMCACHE" + bytes(4) + b"\1"])
def test_clear_leaves_nothing_of_another_owner(medium: Path, head: bytes) -> None:
    dirty(medium)
    poke(medium, 0, head)
    assert kind_of(lambda: Region.format(medium, uuid=UUID, epoch=1)) in {"exists", "foreign"}
    assert Region.format(medium, uuid=UUID, epoch=1, clear=True).epoch == 1
    assert b"another owner" not in medium.read_bytes()
    with Region.attach(medium, uuid=UUID, epoch=1) as region:
        region.namespace(FINGERPRINT).put(b"k", b"x")


def test_clear_takes_a_region_of_the_same_uuid_only_by_its_epoch(medium: Path) -> None:
    Region.format(medium, size=32 * MIB, uuid=UUID, epoch=2)
    before = medium.read_bytes()
    for epoch in (1, 2, 3):
        assert kind_of(lambda epoch=epoch: Region.format(medium, uuid=UUID, epoch=epoch, clear=True)) == "exists"
    assert medium.read_bytes() == before
    assert Region.format(medium, uuid=UUID, epoch=3, replaces=2, clear=True).epoch == 3


def test_clear_waits_for_nobody_it_would_hurt(medium: Path) -> None:
    dirty(medium)
    Region.format(medium, replaces=1)
    with Region.attach(medium):
        assert kind_of(lambda: Region.format(medium, uuid=UUID, epoch=1, clear=True)) == "busy"


def test_clear_that_died_is_begun_again(medium: Path) -> None:
    dirty(medium)
    Region.format(medium, uuid=UUID, epoch=1, clear=True)
    poke(medium, 12, b"\1")
    poke(medium, 16 * MIB, b"another owner's")
    assert kind_of(lambda: Region.attach(medium)) == "formatting"
    Region.format(medium, uuid=UUID, epoch=1, clear=True)
    assert b"another owner" not in medium.read_bytes()


def test_a_process_notices_a_new_epoch_and_misses(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    reader = Region.attach(medium, read_only=True)
    with Region.attach(medium) as region:
        region.namespace(FINGERPRINT).put(b"k", b"x")
    ns = reader.namespace(FINGERPRINT)
    assert ns.lookup([b"k"]) == 1
    Region.format(medium, replaces=1)
    assert ns.lookup([b"k"]) == 0
    assert reader.info().lost
    assert reader.stats()["miss_lost"] == 1
    reader.close()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"size": 32 * MIB + 1}, "size: expected a multiple"),
        ({"size": 1 * MIB, "chunk_bytes": 2 * MIB}, "size: 1048576 bytes are too few"),
        ({"size": 32 * MIB, "chunk_bytes": 3 << 16}, "chunk_bytes: expected a power of two"),
        ({"size": 32 * MIB, "chunk_bytes": 1 << 10}, "chunk_bytes: expected a power of two"),
        ({"size": 32 * MIB, "domains": 0}, "domains: expected at least 1"),
        ({"size": 32 * MIB, "objects": 0}, "objects: expected at least 1"),
        ({"size": 32 * MIB, "coherence": "maybe"}, "coherence: expected"),
        ({"size": 32 * MIB, "uuid": "not-a-uuid"}, "uuid: expected 32 hexadecimal digits"),
    ],
)
def test_a_region_that_cannot_be_is_refused_before_a_file_is_made(
    medium: Path, options: dict[str, object], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        Region.format(medium, **options)  # type: ignore[arg-type]
    assert not medium.exists()


@pytest.mark.parametrize("options", [{"epoch": 0}, {"size": 1 << 60, "chunk_bytes": 64 * MIB, "domains": 64}])
def test_a_format_that_fails_leaves_no_file_of_its_own(medium: Path, options: dict[str, int]) -> None:
    with pytest.raises((RegionError, ValueError)):
        Region.format(medium, **({"size": 32 * MIB} | options))  # type: ignore[arg-type]
    assert not medium.exists()
    medium.touch()
    with pytest.raises((RegionError, ValueError)):
        Region.format(medium, **({"size": 32 * MIB} | options))  # type: ignore[arg-type]
    assert medium.exists(), "this one was there before"


def test_what_cannot_be_opened_says_what_to_do(medium: Path) -> None:
    for call in (lambda: Region.attach(medium), lambda: Region.format(medium)):
        with pytest.raises(RegionError, match=r"No such file.*format it with a size to create it"):
            call()
    with pytest.raises(ValueError, match="target: no file descriptor has the number"):
        Region.attach(1 << 40)


OWNER_LINES = (64, 3840)
"""Both copies of a domain's owner line, from the start of the domain."""


def forget_owner(medium: Path, *lines: int) -> None:
    """Damages these copies of the line that says who owns domain 0."""
    domain_at = int.from_bytes(medium.read_bytes()[144:152], "little")
    for line in lines:
        flip(medium, domain_at + line + 40)


@pytest.mark.parametrize("line", OWNER_LINES)
def test_a_second_host_is_refused_by_name_though_an_owner_line_is_damaged(medium: Path, line: int) -> None:
    Region.format(medium, size=32 * MIB)
    with Region.attach(medium, host="node-a") as region:
        region.namespace(FINGERPRINT).put(b"k", b"x")
    forget_owner(medium, line)
    with pytest.raises(RegionError, match="domain 0 belongs to another host") as caught:
        Region.attach(medium, host="node-b")
    assert caught.value.kind == "owned"
    with Region.attach(medium, host="node-a") as region:
        assert region.namespace(FINGERPRINT).lookup([b"k"]) == 1, "its owner lost it"
    forget_owner(medium, *set(OWNER_LINES) - {line})
    assert kind_of(lambda: Region.attach(medium, host="node-b")) == "owned", "the owner did not mend the line"


def test_a_second_owner_line_of_an_earlier_turn_is_not_believed(medium: Path) -> None:
    """As a release that writes one owner line leaves it."""
    Region.format(medium, size=32 * MIB)
    with Region.attach(medium, host="node-a") as region:
        region.namespace(FINGERPRINT).put(b"k", b"x")
    domain_at = int.from_bytes(medium.read_bytes()[144:152], "little")
    for ticket in (3584, 3648, 3712, 3776):
        poke(medium, domain_at + ticket, (2 << 48).to_bytes(8, "little"))
    forget_owner(medium, OWNER_LINES[0])
    with Region.attach(medium, host="node-a") as region:
        assert region.namespace(FINGERPRINT).lookup([b"k"]) == 0


def test_a_domain_whose_owner_nobody_can_tell_is_not_taken_from_the_living(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    with Region.attach(medium) as region:
        ns = region.namespace(FINGERPRINT)
        ns.put(b"k", b"x")
        forget_owner(medium, *OWNER_LINES)
        with pytest.raises(RegionError, match=r"damaged owner line.*live processes") as caught:
            Region.attach(medium)
        assert caught.value.kind == "busy"
        assert ns.lookup([b"k"]) == 1
        assert region.stats()["processes"] == [1]
    with Region.attach(medium) as region:
        assert region.namespace(FINGERPRINT).lookup([b"k"]) == 0, "nobody can tell whose they are"


def test_a_domain_out_of_range_is_refused(medium: Path) -> None:
    Region.format(medium, size=32 * MIB, domains=2)
    with pytest.raises(ValueError, match="domain: expected 0 to 1, found 2"):
        Region.attach(medium, domain=2)


def test_a_second_host_is_refused_and_the_first_may_come_back(medium: Path) -> None:
    Region.format(medium, size=32 * MIB, domains=2)
    with Region.attach(medium, host="node-a") as region:
        region.namespace(FINGERPRINT).put(b"k", b"x")
    assert kind_of(lambda: Region.attach(medium, host="node-b")) == "owned"
    with Region.attach(medium, host="node-b", domain=1) as other, Region.attach(medium, host="NODE-A") as first:
        assert first.namespace(FINGERPRINT).lookup([b"k"]) == 1
        assert other.namespace(FINGERPRINT).lookup([b"k"]) == 1


def test_a_memory_file_by_descriptor(medium: Path) -> None:
    fd = os.memfd_create("region")
    os.ftruncate(fd, 32 * MIB)
    Region.format(fd)
    with Region.attach(fd) as region:
        os.close(fd)
        ns = region.namespace(FINGERPRINT)
        assert ns.put(b"k", b"x")
        assert ns.lookup([b"k"]) == 1


def test_a_socket_hands_the_region_over(tmp_path: Path) -> None:
    fd = os.memfd_create("region")
    os.ftruncate(fd, 32 * MIB)

    def handler(request: dict[str, object]) -> tuple[dict[str, object], int | None]:
        if request.get("region") not in (None, "r-1"):
            raise HandoverError("no-such-region", "ask for r-1")
        return {"ok": True, "region": "r-1", "bytes": 32 * MIB, "access": "rw"}, os.dup(fd)

    with Server(tmp_path / "s.sock", handler):
        target = f"unix:{tmp_path}/s.sock"
        Region.format(target)
        with Region.attach(target) as one, Region.attach(f"{target}?region=r-1") as two:
            assert one.info().process_slot != two.info().process_slot, "locks are shared with the sender"
            one.namespace(FINGERPRINT).put(b"k", b"x")
            assert two.namespace(FINGERPRINT).lookup([b"k"]) == 1
        with pytest.raises(HandoverError, match="ask for r-1"):
            Region.attach(f"{target}?region=r-2")
        with pytest.raises(ValueError, match=r"expected unix:/path\.sock"):
            Region.attach(f"{target}?blade=1")
    os.close(fd)


@pytest.mark.parametrize("target", [None, 1.5, True, b"bytes\0zero"])
def test_a_target_of_a_wrong_type_is_refused(target: object) -> None:
    with pytest.raises((TypeError, RegionError, ValueError)):
        Region.attach(target)  # type: ignore[arg-type]


def test_a_folder_is_no_region(tmp_path: Path) -> None:
    with pytest.raises(RegionError):
        Region.attach(tmp_path, read_only=True)


ATTACH_AT_ONCE = """
import sys
from hymcache.region import Region
print(flush=True)
sys.stdin.readline()
region = Region.attach(sys.argv[1])
print(region.info().process_slot, flush=True)
sys.stdin.readline()
"""


def test_sixteen_processes_attach_at_once(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    command = [sys.executable, "-c", ATTACH_AT_ONCE, str(medium)]
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(16)
        ]
        for worker in workers:
            stack.callback(worker.kill)
        inputs = [worker.stdin for worker in workers if worker.stdin]
        outputs = [worker.stdout for worker in workers if worker.stdout]
        for output in outputs:
            output.readline()
        for line in inputs:
            line.write("\n")
            line.flush()
        slots = [output.readline().strip() for output in outputs]
        assert sorted(slots, key=int) == [str(slot) for slot in range(16)], "a slot has one holder"
        with Region.attach(medium, read_only=True) as watcher:
            assert watcher.users(0) == 16
        assert [worker.communicate("\n", timeout=60) and worker.returncode for worker in workers] == [0] * 16


def stores_allowed(medium: Path) -> list[tuple[int, int]]:
    """Ranges of a region that this process may store into, by the kernel."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split()
        if fields[-1] == str(medium) and "w" in fields[1]:
            start, end = (int(number, 16) for number in fields[0].split("-"))
            found.append((int(fields[2], 16), int(fields[2], 16) + end - start))
    return sorted(found)


@pytest.mark.parametrize("domain", [0, 1, 2])
def test_a_stray_store_outside_the_own_domain_faults(medium: Path, domain: int) -> None:
    info = Region.format(medium, size=64 * MIB, chunk_bytes=64 << 10, domains=3)
    with Region.attach(medium, read_only=True):
        assert stores_allowed(medium) == []
    domain_at = int.from_bytes(medium.read_bytes()[144:152], "little")
    metadata = (info.metadata_bytes - domain_at) // 3
    pool = info.chunks // 3 * info.chunk_bytes
    with Region.attach(medium, domain=domain):
        assert stores_allowed(medium) == [
            (domain_at + domain * metadata, domain_at + (domain + 1) * metadata),
            (info.metadata_bytes + domain * pool, info.metadata_bytes + (domain + 1) * pool),
        ]


def test_process_slots_run_out_with_a_clear_error(medium: Path) -> None:
    Region.format(medium, size=32 * MIB)
    with contextlib.ExitStack() as regions:
        for _ in range(63):
            regions.enter_context(Region.attach(medium, populate=False))
        last = Region.attach(medium, populate=False)
        assert last.info().process_slot == 63
        assert kind_of(lambda: Region.attach(medium, populate=False)) in {"crowded", "too-many"}
        last.close()
        Region.attach(medium, populate=False).close()
