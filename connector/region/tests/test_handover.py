from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hymcache.region import handover
from hymcache.region.handover import HandoverError, Server, receive, request


@pytest.fixture
def memfd() -> Iterator[int]:
    fd = os.memfd_create("region-test")
    os.write(fd, b"hello region")
    yield fd
    os.close(fd)


def serving(path: Path, fd: int) -> Server:
    def handler(obj: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
        if obj["op"] == "hello":
            return {"ok": True, "blade": "b1"}, None
        if obj["op"] == "boom":
            raise RuntimeError("secret detail")
        if obj.get("region") not in (None, "r-1"):
            raise HandoverError("no-such-region", f"region {obj['region']} is not here; ask for r-1")
        return {"ok": True, "region": "r-1", "bytes": 12, "access": "rw"}, os.dup(fd)

    return Server(path, handler)


def open_fds() -> int:
    """Descriptors of the file that is handed out; threads of other tests open and close theirs as they like."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    return sum("memfd:region-test" in link for link in links)


def settled(before: int) -> bool:
    """True once no more descriptors are open than before: a server's thread closes its own a moment later."""
    deadline = time.monotonic() + 5
    while open_fds() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    return open_fds() <= before


def test_the_descriptor_arrives_with_the_open_reply(tmp_path: Path, memfd: int) -> None:
    with serving(tmp_path / "s.sock", memfd):
        fd, reply = receive(tmp_path / "s.sock", region="r-1")
        try:
            assert reply == {"ok": True, "region": "r-1", "bytes": 12, "access": "rw"}
            assert os.pread(fd, 12, 0) == b"hello region"
            assert not os.get_inheritable(fd)
            assert os.path.sameopenfile(fd, memfd)
        finally:
            os.close(fd)


def test_a_refusal_carries_code_and_message_and_no_descriptor(tmp_path: Path, memfd: int) -> None:
    with serving(tmp_path / "s.sock", memfd):
        before = open_fds()
        with pytest.raises(HandoverError, match="ask for r-1") as caught:
            receive(tmp_path / "s.sock", region="other")
        assert caught.value.code == "no-such-region"
        del caught
        assert settled(before)


def test_no_server_is_unreachable_not_a_hang(tmp_path: Path) -> None:
    with pytest.raises(HandoverError) as caught:
        receive(tmp_path / "nobody.sock")
    assert caught.value.code == "unreachable"


def test_a_mute_server_times_out(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "m.sock"))
        mute.listen()
        with pytest.raises(HandoverError) as caught:
            request(tmp_path / "m.sock", {"op": "hello"}, timeout=0.2)
        assert caught.value.code == "unreachable"


def test_a_server_that_sends_byte_by_byte_times_out(tmp_path: Path) -> None:
    def drip() -> None:
        with contextlib.suppress(OSError):
            connection, _ = slow.accept()
            with connection:
                for _ in range(100):
                    connection.sendall(b" ")
                    time.sleep(0.05)

    with socket.socket(socket.AF_UNIX) as slow:
        slow.bind(str(tmp_path / "d.sock"))
        slow.listen()
        thread = threading.Thread(target=drip)
        thread.start()
        start = time.monotonic()
        with pytest.raises(HandoverError) as caught:
            request(tmp_path / "d.sock", {"op": "hello"}, timeout=0.3)
        assert caught.value.code == "unreachable"
        assert time.monotonic() - start < 3
        thread.join()


def test_a_failing_handler_refuses_without_details_and_the_server_lives(tmp_path: Path, memfd: int) -> None:
    with serving(tmp_path / "s.sock", memfd):
        with pytest.raises(HandoverError) as caught:
            request(tmp_path / "s.sock", {"op": "boom"})
        assert "secret" not in str(caught.value)
        assert request(tmp_path / "s.sock", {"op": "hello"})["blade"] == "b1"


def raw_exchange(path: Path, payload: bytes, lines: int) -> list[dict[str, Any]]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(str(path))
        sock.sendall(payload)
        with sock.makefile("rb") as reader:
            return [json.loads(reader.readline()) for _ in range(lines)]


def test_several_requests_share_a_connection(tmp_path: Path, memfd: int) -> None:
    with serving(tmp_path / "s.sock", memfd):
        replies = raw_exchange(tmp_path / "s.sock", b'{"op":"hello"}\n{"op":"hello"}\n', 2)
        assert [r["ok"] for r in replies] == [True, True]


@pytest.mark.parametrize(
    "line", [b"not json\n", b"[]\n", b'{"region":"x"}\n', b'{"op":7}\n', b"\xff\xfe\n", b"[" * 4000 + b"\n"]
)
def test_a_malformed_request_is_refused_and_the_connection_lives(tmp_path: Path, memfd: int, line: bytes) -> None:
    with serving(tmp_path / "s.sock", memfd):
        bad, good = raw_exchange(tmp_path / "s.sock", line + b'{"op":"hello"}\n', 2)
        assert bad["error"] == "bad-request"
        assert good["ok"] is True


def test_an_endless_request_line_is_cut_off(tmp_path: Path, memfd: int) -> None:
    with serving(tmp_path / "s.sock", memfd), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(str(tmp_path / "s.sock"))
        sock.sendall(b"x" * (handover.REQUEST_BYTES_MAX + 1))
        with sock.makefile("rb") as reader:
            assert json.loads(reader.readline())["error"] == "bad-request"
            assert reader.readline() == b""


def test_a_request_over_the_limit_is_a_value_error_before_sending(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="request: at most 4096"):
        request(tmp_path / "s.sock", {"op": "x" * 5000})


@pytest.mark.parametrize("reply", [b"", b"nonsense\n", b"[1]\n", b'{"fine":1}\n', b"[" * 100_000 + b"\n"])
def test_a_malformed_reply_is_a_protocol_error_and_leaks_nothing(tmp_path: Path, memfd: int, reply: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as liar:
        liar.bind(str(tmp_path / "l.sock"))
        liar.listen()

        def lie() -> None:
            connection, _ = liar.accept()
            with connection:
                connection.recv(100)
                if reply:
                    socket.send_fds(connection, [reply], [memfd, memfd])

        thread = threading.Thread(target=lie)
        thread.start()
        before = open_fds()
        with pytest.raises(HandoverError) as caught:
            receive(tmp_path / "l.sock")
        thread.join()
        assert caught.value.code == "protocol"
        del caught
        assert settled(before)


def test_two_descriptors_where_one_was_due_are_both_closed(tmp_path: Path, memfd: int) -> None:
    with socket.socket(socket.AF_UNIX) as liar:
        liar.bind(str(tmp_path / "l.sock"))
        liar.listen()

        def lie() -> None:
            connection, _ = liar.accept()
            with connection:
                connection.recv(100)
                socket.send_fds(connection, [b'{"ok":true}\n'], [memfd, memfd])

        thread = threading.Thread(target=lie)
        thread.start()
        before = open_fds()
        with pytest.raises(HandoverError, match="expected one descriptor"):
            receive(tmp_path / "l.sock")
        thread.join()
        assert settled(before)


def test_a_stale_socket_file_is_replaced_and_a_live_one_is_not(tmp_path: Path, memfd: int) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serving(path, memfd):
        with pytest.raises(HandoverError, match="already listening"):
            serving(path, memfd)
        assert request(path, {"op": "hello"})["ok"] is True
    assert not path.exists()


def test_a_plain_file_in_the_way_is_left_alone(tmp_path: Path, memfd: int) -> None:
    path = tmp_path / "s.sock"
    path.write_text("mine")
    with pytest.raises(HandoverError, match="another kind of file"):
        serving(path, memfd)
    assert path.read_text() == "mine"


def test_close_does_not_unlink_the_socket_of_a_successor(tmp_path: Path, memfd: int) -> None:
    path = tmp_path / "s.sock"
    first = serving(path, memfd)
    path.unlink()
    with serving(path, memfd):
        first.close()
        assert request(path, {"op": "hello"})["ok"] is True


def test_a_path_longer_than_sun_path_works(tmp_path: Path, memfd: int) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    with serving(folder / "s.sock", memfd):
        assert request(folder / "s.sock", {"op": "hello"})["ok"] is True


def test_the_socket_has_its_mode_and_no_leftover_beside_it(tmp_path: Path, memfd: int) -> None:
    with serving(tmp_path / "s.sock", memfd):
        assert (tmp_path / "s.sock").stat().st_mode & 0o777 == 0o666
        assert [p.name for p in tmp_path.iterdir()] == ["s.sock"]


def test_the_server_closes_what_it_sent_and_hangs_up_on_close(tmp_path: Path, memfd: int) -> None:
    before = open_fds()
    server = serving(tmp_path / "s.sock", memfd)
    for _ in range(20):
        fd, _ = receive(tmp_path / "s.sock")
        os.close(fd)
    with socket.socket(socket.AF_UNIX) as idle:
        idle.settimeout(5)
        idle.connect(str(tmp_path / "s.sock"))
        idle.sendall(b'{"op":"hello"}\n')
        assert idle.recv(4096).endswith(b"\n")
        server.close()
        server.close()
        with contextlib.suppress(ConnectionError):
            assert idle.recv(1) == b""
    assert settled(before)
