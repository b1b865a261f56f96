"""`/metrics`, `/healthz` and `/readyz` over HTTP, for Prometheus and for the kubelet's probes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from hymcache.dra.metrics import Metrics
from prometheus_client import make_wsgi_app

Check = Callable[[], str | None]
"""None, or in one sentence what is wrong."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds; they are not worth a line."""


class Probes:
    """Serves in a thread until closed."""

    def __init__(self, listen: str, metrics: Metrics, *, alive: Check, ready: Check) -> None:
        host, _, port = listen.rpartition(":")
        self._metrics = make_wsgi_app(metrics.registry)
        self._checks = {"/healthz": alive, "/readyz": ready}
        self._server = make_server(host, int(port), self._answer, _Server, _Silent)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, name="probes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            body: Iterable[bytes] = self._metrics(environ, start)
            return body
        check = self._checks.get(path)
        if check is None:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"expected /metrics, /healthz or /readyz\n"]
        wrong = check()
        start("503 Service Unavailable" if wrong else "200 OK", [("Content-Type", "text/plain")])
        return [f"{wrong or 'ok'}\n".encode()]
