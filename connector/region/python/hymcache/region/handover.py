"""Handing a region's file descriptor over a unix socket: one protocol for appliance cables and pod sockets.

The client sends one JSON object per line (at most `REQUEST_BYTES_MAX`), the server answers each with one JSON line.

- `{"op":"hello"}` -> `{"ok":true,"blade","host","coherence","media","power_epoch"}`
- `{"op":"list"}`  -> `{"ok":true,"regions":[{"region","bytes","access"}]}`
- `{"op":"open","region":NAME}` -> `{"ok":true,"region","bytes","access","coherence","media"}`, access `rw` or `ro`,
  coherence `software` or `hardware`; `region` may be left out where the socket serves one
  region. The descriptor rides (SCM_RIGHTS) on the first byte of this reply and on no other.
- a refusal is `{"ok":false,"error":CODE,"message":SENTENCE}`, CODE one of `ERROR_CODES`.

Several requests may follow one another on a connection; EOF ends it. What the requests mean is the handler's business:
this module moves lines and descriptors, bounds their size, and closes what it does not keep.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

REQUEST_BYTES_MAX: Final = 4096
REPLY_BYTES_MAX: Final = 1 << 20
ERROR_CODES: Final = ("not-connected", "no-such-region", "link-down", "bad-request")
IDLE_SECONDS: Final = 60.0  # a client that says nothing for this long is hung up on, so that it cannot pin a thread
CONNECTIONS_MAX: Final = 128

Reply = dict[str, Any]
Handler = Callable[[Reply], tuple[Reply, int | None]]


class HandoverError(Exception):
    """The other side refused, could not be reached, or did not keep to the protocol.

    `code` is one of `ERROR_CODES`, `unreachable` (no server, or a timeout) or `protocol` (a malformed reply).
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def request(path: str | os.PathLike[str], obj: Mapping[str, Any], *, timeout: float = 5.0) -> Reply:
    """Send one request to the socket at `path` and return its reply.

    Raises:
        HandoverError: refused, unreachable within `timeout` seconds, or a malformed reply. A descriptor that comes with
            the reply is closed: only `receive` keeps one.
    """
    reply, descriptors = _exchange(path, obj, timeout)
    _close_all(descriptors)
    return reply


def receive(path: str | os.PathLike[str], *, region: str | None = None, timeout: float = 5.0) -> tuple[int, Reply]:
    """Ask the socket at `path` for a region and return (descriptor, reply); the descriptor is the caller's to close.

    It is close-on-exec. It shares its open file description with the sender, hence its locks: reopen
    `/proc/self/fd/N` before locking anything.

    Raises:
        HandoverError: refused, unreachable within `timeout` seconds, or a reply without exactly one descriptor.
    """
    obj = {"op": "open"} if region is None else {"op": "open", "region": region}
    reply, descriptors = _exchange(path, obj, timeout)
    if len(descriptors) != 1:
        _close_all(descriptors)
        raise HandoverError("protocol", f"{path}: expected one descriptor with the reply, found {len(descriptors)}")
    return descriptors[0], reply


def _exchange(path: str | os.PathLike[str], obj: Mapping[str, Any], timeout: float) -> tuple[Reply, list[int]]:
    line = json.dumps(obj).encode() + b"\n"
    if len(line) > REQUEST_BYTES_MAX:
        raise ValueError(f"request: at most {REQUEST_BYTES_MAX} bytes as one JSON line, found {len(line)}")
    descriptors: list[int] = []
    deadline = time.monotonic() + timeout
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, _short_address(Path(path)) as address:
            sock.settimeout(timeout)
            sock.connect(address)
            sock.sendall(line)
            raw = _receive_line(sock, descriptors, deadline)
        return _parse_reply(path, raw), descriptors
    except OSError as error:
        _close_all(descriptors)
        message = f"{path}: no answer from a region socket: {error}; check the path, and that its server runs"
        raise HandoverError("unreachable", message) from error
    except BaseException:
        _close_all(descriptors)
        raise


def _receive_line(sock: socket.socket, descriptors: list[int], deadline: float) -> bytes:
    """Read up to a newline; whatever descriptors arrive on the way are appended to `descriptors`, close-on-exec.

    The whole line has until `deadline`, a server that sends byte by byte does not get more.
    """
    raw = bytearray()
    while not raw.endswith(b"\n") and len(raw) <= REPLY_BYTES_MAX:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        sock.settimeout(left)
        data, ancillary, _, _ = sock.recvmsg(65536, socket.CMSG_SPACE(16), socket.MSG_CMSG_CLOEXEC)
        for level, kind, body in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(body[: len(body) - len(body) % fds.itemsize])
                descriptors.extend(fds)
        if not data:
            break
        raw += data
    return bytes(raw)


def _parse_reply(path: str | os.PathLike[str], raw: bytes) -> Reply:
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise HandoverError("protocol", f"{path}: expected one JSON line, found {raw[:80]!r}") from error
    if not isinstance(reply, dict) or not isinstance(reply.get("ok"), bool):
        raise HandoverError("protocol", f'{path}: expected an object with "ok", found {raw[:80]!r}')
    if not reply["ok"]:
        raise HandoverError(
            str(reply.get("error", "bad-request")), str(reply.get("message", "refused without a reason"))
        )
    return reply


class Server:
    """Answers the protocol on a unix socket, one thread per connection, until closed.

    `handler(request) -> (reply, descriptor | None)` is called for every well-formed line, from several threads at once.
    **The descriptor becomes the server's**: it is closed once sent (or when sending fails). Return `os.dup(fd)` taken
    under the lock that guards `fd`, so that a concurrent close can never let another file go out in its place.
    A handler that raises `HandoverError` refuses with that code and message; any other exception refuses as
    `bad-request` without telling the client more than the exception's type.

    The socket appears at `path` complete: bound and given `mode` under another name, then renamed over a stale one. A
    live server at `path` is an error. `close` (or leaving the context) unlinks `path` if it is still this socket.
    """

    def __init__(self, path: str | os.PathLike[str], handler: Handler, mode: int = 0o666) -> None:
        self.path = Path(path)
        self._handler = handler
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._listener, self._identity = _listen(self.path, mode)
        self._thread = threading.Thread(target=self._accept, name=f"handover {self.path.name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop accepting, hang up on every client, unlink the socket. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            connections = list(self._connections)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._identity:
                self.path.unlink()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._lock:
                full = self._closed or not self._slots.acquire(blocking=False)
                if not full:
                    self._connections.add(connection)
            if full:
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(IDLE_SECONDS)
            with connection.makefile("rb") as lines:
                while line := lines.readline(REQUEST_BYTES_MAX + 1):
                    keep = self._answer(connection, line)
                    if not keep:
                        return
        except OSError:
            pass  # the client went away, or said nothing for too long
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()
            self._slots.release()

    def _answer(self, connection: socket.socket, line: bytes) -> bool:
        """Answer one line; False when the stream is out of step and must be closed."""
        whole = line.endswith(b"\n") and len(line) <= REQUEST_BYTES_MAX
        descriptor: int | None = None
        try:
            reply, descriptor = (
                self._ask(line) if whole else _refusal(f"a request is one line of <= {REQUEST_BYTES_MAX} B")
            )
            raw = json.dumps(reply).encode() + b"\n"
            if descriptor is None:
                connection.sendall(raw)
            else:
                socket.send_fds(connection, [raw[:1]], [descriptor])
                connection.sendall(raw[1:])
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return whole

    def _ask(self, line: bytes) -> tuple[Reply, int | None]:
        try:
            obj = json.loads(line)
        except (ValueError, RecursionError):  # the latter for brackets in brackets
            return _refusal("a request is one JSON object per line")
        if not isinstance(obj, dict) or not isinstance(obj.get("op"), str):
            return _refusal('a request is a JSON object with a string "op"')
        try:
            return self._handler(obj)
        except HandoverError as error:
            return {"ok": False, "error": error.code, "message": str(error)}, None
        except Exception as error:  # a client must not be able to end the server
            return _refusal(f"the request could not be served ({type(error).__name__})")


def _refusal(message: str) -> tuple[Reply, None]:
    return {"ok": False, "error": "bad-request", "message": message}, None


def _listen(path: Path, mode: int) -> tuple[socket.socket, tuple[int, int]]:
    """A listening socket at `path`, and the identity of its inode."""
    if _is_live(path):
        raise HandoverError(
            "bad-request", f"{path}: a server is already listening here; stop it or choose another path"
        )
    staged = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_address(staged) as address:
            sock.bind(address)
        staged.chmod(mode)
        sock.listen(CONNECTIONS_MAX)
        identity = _identity(staged)
        staged.rename(path)
    except BaseException:
        sock.close()
        staged.unlink(missing_ok=True)
        raise
    return sock, identity


def _is_live(path: Path) -> bool:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise HandoverError("bad-request", f"{path}: expected a socket or nothing, found another kind of file")
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, _short_address(path) as address:
        probe.settimeout(1.0)
        try:
            probe.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _short_address(path: Path) -> Iterator[str]:
    """An address for `path` under the 107 bytes that sun_path holds, by way of its folder's descriptor."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    descriptors.clear()
