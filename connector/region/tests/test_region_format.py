"""An independent reader in plain Python, written from docs/region-format.md, agrees with the core on every object."""

from __future__ import annotations

import ctypes
import hashlib
import random
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hymcache.region import Region

Content = Callable[[bytes, int], bytes]
FINGERPRINT = bytes(range(32))
VALID, RETIRED = 2, 3
MASK = (1 << 128) - 1


def crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc_table()


def crc32c(data: bytes, start: int = 0) -> int:
    crc = start ^ 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass
class Stored:
    state: int
    digest: bytes
    sections: int
    units: list[bytes]


class Reader:
    """What the page says, in its order."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        assert raw[:8] == b"HYMCACHE"
        version, state, _, incompat, read_only = struct.unpack_from("<IIQQQ", raw, 8)
        assert (version, state, incompat, read_only) == (1, 2, 0, 0)
        assert crc32c(raw[:252]) == self.u32(252)
        self.uuid, self.epoch = raw[40:56], self.u64(56)
        self.granule, self.chunk_bytes = self.u64(72), self.u64(80)
        (self.domain_chunks, self.domains, self.sets, lines) = struct.unpack_from("<4I", raw, 88)
        self.slot_bytes = 64 * lines
        processes, namespaces, quarantine = struct.unpack_from("<3I", raw, 104)
        self.rings = struct.unpack_from("<4I", raw, 116)
        sizes = {
            "block": 4096,
            "processes": 256 * processes,
            "namespaces": 64 * namespaces,
            "quarantine": 64 * quarantine,
            "rings": 64 * sum(self.rings),
            "tags": 64 * self.sets,
            "headers": 64 * 16 * self.sets,
            "side": 16 * 16 * self.sets,
            "words": up(8 * self.domain_chunks, 64),
            "tables": self.slot_bytes * self.domain_chunks,
            "ghosts": 8 * 16 * self.sets,
            "shadows": 128 * -(-3 * self.sets // 8),
        }
        self.areas, end = {}, 0
        for name, size in sizes.items():
            self.areas[name] = end
            end += size
        self.domain_at, self.domain_bytes = up(4096, self.granule), up(end, self.granule)
        self.pool_at = self.domain_at + self.domains * self.domain_bytes
        assert (self.domain_at, self.pool_at) == struct.unpack_from("<QQ", raw, 144)
        self.seed = crc32c(self.uuid + raw[56:64])

    def u32(self, at: int) -> int:
        return int.from_bytes(self.raw[at : at + 4], "little")

    def u64(self, at: int) -> int:
        return int.from_bytes(self.raw[at : at + 8], "little")

    def place(self, domain: int, area: str) -> int:
        return self.domain_at + domain * self.domain_bytes + self.areas[area]

    def sealed(self, at: int) -> bytes:
        line = self.raw[at : at + 64]
        assert crc32c(at.to_bytes(8, "little") + line[:60] + bytes(4)) == self.u32(at + 60)
        return line

    def digest(self, key: bytes) -> tuple[bytes, list[int], int]:
        """(20 bytes of a header, sets, tag)."""
        words = [int.from_bytes(key[i : i + 8], "little") for i in range(0, len(key), 8)]
        blocks = b"".join(
            hashlib.sha256(b"hymcache directory key\0" + self.uuid + FINGERPRINT + i.to_bytes(4, "little")).digest()
            for i in range(26)
        )
        constants = [int.from_bytes(blocks[i : i + 16], "little") for i in range(0, len(blocks), 16)]
        lanes = []
        for lane in range(3):
            k = constants[17 * lane : 17 * lane + 17]
            total = k[0] + sum(k[i + 1] * word for i, word in enumerate(words)) + k[16] * len(key)
            high = (total & MASK) >> 64
            lanes.append((high ^ high >> 32) * 0x9E3779B97F4A7C15 & MASK >> 64)
        a, b, c = lanes
        first, second = a * self.sets >> 64, b * self.sets >> 64
        if first == second:
            second = (second + 1) % self.sets
        return struct.pack("<QQI", a, b, c >> 32), [first, second], c & 0xFFFFFFFF or 1

    def find(self, key: bytes) -> list[Stored]:
        digest, sets, tag = self.digest(key)
        found = []
        for domain in range(self.domains):
            for index in sets:
                tags = struct.unpack_from("<16I", self.raw, self.place(domain, "tags") + 64 * index)
                headers = (16 * index + way for way in range(16) if tags[way] == tag)
                found += [s for h in headers if (s := self.object(domain, h)) and s.digest == digest]
        return found

    def objects(self) -> Iterator[Stored]:
        for domain in range(self.domains):
            record = self.sealed(self.place(domain, "block"))
            assert record[:4] == b"HyDm"
            assert struct.unpack_from("<III", record, 4) == (domain, 0, 1)
            local, chunk, count = struct.unpack_from("<III", self.sealed(self.place(domain, "block") + 1024), 8)
            assert (local, chunk, count) == (0, domain * self.domain_chunks, self.domain_chunks)
            for header in range(16 * self.sets):
                if stored := self.object(domain, header):
                    yield stored

    def entries(self, domain: int, ring: int) -> list[tuple[int, tuple[int, ...]]]:
        """(sequence, body) of a ring's sound entries, in order; ring: 0 touch, 1 prefetch, 2 publish, 3 evicted."""
        found = []
        for index in range(self.rings[ring]):
            at = self.place(domain, "rings") + 64 * (sum(self.rings[:ring]) + index)
            line = self.raw[at : at + 64]
            sound = crc32c(at.to_bytes(8, "little") + line[:56], self.seed) == self.u32(at + 60)
            sequence, *body, rest = struct.unpack("<8Q", line)
            if sequence and sound:
                assert rest & 0xFFFFFFFF == 0
                assert sequence % self.rings[ring] == index
                found.append((sequence, tuple(body)))
        assert not found or max(found)[0] == self.u64(self.place(domain, "block") + 3584 + 64 * ring)
        return sorted(found)

    def object(self, domain: int, header: int) -> Stored | None:
        at = self.place(domain, "headers") + 64 * header
        word = self.u64(at)
        state, generation = word & 15, word >> 16
        if state not in (VALID, RETIRED):
            return None
        stable = (generation << 16).to_bytes(8, "little")
        checked = at.to_bytes(8, "little") + stable + self.raw[at + 8 : at + 60]
        assert crc32c(checked, self.seed) == self.u32(at + 60)
        digest = self.raw[at + 8 : at + 28]
        unit_bytes, units, sections, algorithm, part, parts = struct.unpack_from("<IHBBBB", self.raw, at + 28)
        slot, table_crc, epoch = struct.unpack_from("<III", self.raw, at + 40)
        assert (algorithm, part, parts, epoch) == (1, 0, 1, self.epoch & 0xFFFFFFFF)
        count, stride, per_slot = units * sections, up(unit_bytes, 64), (self.slot_bytes - 8) // 8
        k = max(-(-count * stride // self.chunk_bytes), -(-count // per_slot), 1)
        chunks, crcs = [], []
        crc = crc32c(generation.to_bytes(8, "little"), self.seed)
        for _ in range(k):
            place = self.place(domain, "tables") + self.slot_bytes * slot
            held = self.u64(self.place(domain, "words") + 8 * slot)
            assert held == header | (generation & (1 << 34) - 1) << 28 | 1 << 62
            crc = crc32c(self.raw[place : place + self.slot_bytes], crc)
            chunk, slot = struct.unpack_from("<II", self.raw, place)
            chunks.append(chunk)
            crcs += struct.unpack_from(f"<{per_slot}Q", self.raw, place + 8)
        assert crc == table_crc
        return Stored(
            state, digest, sections, list(self.units(digest, generation, (count, unit_bytes, stride), chunks, crcs))
        )

    def units(
        self, digest: bytes, generation: int, shape: tuple[int, int, int], chunks: list[int], crcs: list[int]
    ) -> Iterator[bytes]:
        count, unit_bytes, stride = shape
        for i in range(count):
            data, offset = b"", i * stride
            while len(data) < unit_bytes:
                within = offset % self.chunk_bytes
                part = min(unit_bytes - len(data), self.chunk_bytes - within)
                at = self.pool_at + chunks[offset // self.chunk_bytes] * self.chunk_bytes + within
                data += self.raw[at : at + part]
                offset += part
            seed = crc32c(digest + generation.to_bytes(8, "little") + i.to_bytes(8, "little"), self.seed)
            assert crc32c(data, seed) == crcs[i]
            yield data


def put_in_sections(region: Region, key: bytes, sections: list[bytes], units: int) -> None:
    """As ranks do."""
    size = len(sections[0])
    refs, _ = region.namespace(FINGERPRINT).reserve([key], units, unit_bytes=size // units, sections=len(sections))
    for number, data in enumerate(sections):
        memory = ctypes.create_string_buffer(data, size)
        pages = region.pages([(ctypes.addressof(memory), size // units, size // units, units)])
        assert region.write_many(refs, pages, range(units), 0, units, section=number) == b"\1"
    assert region.commit(refs) == b"\1"


@pytest.mark.parametrize("seed", range(3))
def test_a_reader_written_from_the_page_agrees_on_every_object(medium: Path, content: Content, seed: int) -> None:
    rng = random.Random(seed)
    Region.format(medium, size=16 << 20, chunk_bytes=64 << 10, domains=2, uuid=str(uuid.UUID(int=5)), epoch=3)
    expected, live = {}, set()
    with Region.attach(medium, domain=0) as one, Region.attach(medium, domain=1) as two:
        spaces = [one.namespace(FINGERPRINT), two.namespace(FINGERPRINT)]
        for i in range(60):
            key = b"k%d" % i * rng.randrange(1, 20)
            units = rng.choice([1, 2, 7, 40])
            unit_bytes = rng.choice([1, 64, 100, 1000]) if units > 2 else rng.choice([100, 9000, 70_000])
            data = content(key, units * unit_bytes)
            assert spaces[i % 2].put(key, data, units=units)
            expected[key] = [data[u * unit_bytes : (u + 1) * unit_bytes] for u in range(units)]
            live.add(key)
        for i in range(6):
            key, sections = (
                b"ranks-%d" % i,
                [content(b"%d-%d" % (i, rank), 4 * (i * 9000 + 100)) for rank in range(i + 2)],
            )
            put_in_sections((one, two)[i % 2], key, sections, 4)
            whole, size = b"".join(sections), i * 9000 + 100
            expected[key] = [whole[at : at + size] for at in range(0, len(whole), size)]
            live.add(key)
        for i, key in enumerate(list(expected)):
            if i % 5 == 0:
                assert spaces[0].evict([key]) + spaces[1].evict([key]) == 1
                live.discard(key)
    reader = Reader(medium.read_bytes())
    for key, units in expected.items():
        (found,) = reader.find(key)
        assert found.units == units
        assert (found.state == VALID) == (key in live)
    assert sum(1 for _ in reader.objects()) == len(expected)


def test_a_reader_written_from_the_page_agrees_on_every_ring_entry(medium: Path) -> None:
    Region.format(medium, size=32 << 20, chunk_bytes=64 << 10, domains=2, epoch=3)
    deadline = int(time.time() * 1000) + 60_000
    with Region.attach(medium, domain=0) as one, Region.attach(medium, domain=1) as two:
        spaces = [one.namespace(FINGERPRINT), two.namespace(FINGERPRINT)]
        for i in range(150):
            spaces[i % 2].put(b"%d" % i, bytes(i + 1))
            spaces[i % 2].prefetch([b"%d" % i], request_id=i, deadline_ms=deadline, priority=i, units=i)
            spaces[1 - i % 2].lookup([b"%d" % i])
        spaces[0].withdraw(8)
        spaces[0].evict([b"%d" % i for i in range(0, 150, 3)])
        end = time.monotonic() + 30
        while min(region.stats()["touches_sent"] for region in (one, two)) < 75:
            assert time.monotonic() < end, "the uses were never told"
            time.sleep(0.02)
        hints, _ = one.hints()
        gone, _ = one.evicted()
        names = [spaces[0].digests([b"%d" % i]) for i in range(150)]
    reader = Reader(medium.read_bytes())
    told = []
    for domain in range(2):
        for sequence, (a, b, c, request, when, span) in reader.entries(domain, 1):
            digest = struct.pack("<QQI", a, b, c & 0xFFFFFFFF) if when >> 56 == 1 else None
            assert digest is None or (digest == names[request] and c >> 32 == reader.digest(b"%d" % request)[2])
            until = when & (1 << 48) - 1
            told.append(
                (domain, sequence, request, digest, until, until - (span >> 32), when >> 48 & 255, span & 0xFFFFFFFF)
            )
    assert told == [(*hint[:4], *hint[5:]) for hint in hints]
    assert len(told) > 100
    left = [
        (
            0,
            sequence,
            struct.pack("<QQI", a, b, c & 0xFFFFFFFF),
            struct.pack("<IIQ", 0, place & 0xFFFFFFFF, generation | reader.epoch << 48),
            size,
        )
        for sequence, (a, b, c, place, generation, size) in reader.entries(0, 3)
    ]
    assert left == [(e.domain, e.sequence, e.digest, e.ref, e.bytes) for e in gone]
    assert [e.bytes for e in gone] == [i + 1 for i in range(0, 150, 6)]
    for domain in range(2):
        uses = [word for _, body in reader.entries(domain, 0) for word in body if word]
        assert len(uses) >= 75
        assert {word >> 56 for word in uses} == {128 | 1 - domain}
        assert all((word >> 28 & (1 << 28) - 1) < 16 * reader.sets for word in uses)
