"""Serving an appliance until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from aiohttp import web
from hymcache.crds.quantity import format_bytes
from hymcache.emulator.appliance import Appliance
from hymcache.emulator.http.app import application
from hymcache.emulator.media import Medium
from hymcache.emulator.media.available import available_bytes, huge_pages_free
from hymcache.emulator.media.memfd import HUGE_BYTES, Allocate, PageSize
from hymcache.emulator.settings import LOOPBACK, Settings

ACCESS_LOG = '%a "%r" %s %Tf s'
log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(settings: Settings, medium: Medium | None = None) -> AsyncIterator[tuple[Appliance, str]]:
    """A running appliance and its URL; gone, with its sockets and its memory, at the end of the block.

    Raises:
        StoreError: the state folder is not usable.
        HandoverError: a cable's socket cannot be made.
        OSError: the address cannot be bound, the certificate not be read.
    """
    tls = _tls(settings)
    if tls is None and not settings.listen.startswith(LOOPBACK):
        log.warning("listening on %s without TLS: credentials go over the network in the clear", settings.listen)
    _warn_of_short_memory(settings)
    appliance = Appliance(settings, medium)
    runner = web.AppRunner(
        application(appliance), access_log_format=ACCESS_LOG, shutdown_timeout=5.0, handle_signals=False
    )
    try:
        await appliance.start()
        await runner.setup()
        address, port = settings.address
        await web.TCPSite(runner, address, port, ssl_context=tls, reuse_address=True).start()
        url = _url(runner.addresses[0], secure=tls is not None)
        with _announced(url, settings.port_file):
            yield appliance, url
    finally:
        await runner.cleanup()
        await appliance.close()


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; raises what `serving` raises."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serving(settings) as (appliance, url):
        view = appliance.blade.view
        log.info("blade=%s url=%s power_epoch=%d lost=%d", settings.blade, url, view.power_epoch, len(view.lost))
        await stop.wait()
        log.info("blade=%s stopping", settings.blade)


def _warn_of_short_memory(settings: Settings) -> None:
    """Say so at the start when the capacity cannot be kept: eager composes will be refused before it is reached."""
    huge = settings.page_size is PageSize.HUGE
    there = huge_pages_free() * HUGE_BYTES if huge else available_bytes() - settings.reserve_bytes
    if settings.allocate is Allocate.EAGER and settings.capacity_bytes > there:
        log.warning(
            "capacity of %s: expected at most the %s of memory that there is now beside the reserve; "
            "composes beyond that will be refused",
            format_bytes(settings.capacity_bytes),
            format_bytes(max(0, there) >> 20 << 20),
        )


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_cert, settings.tls_key)
    return context


def _url(address: tuple[object, ...], *, secure: bool) -> str:
    host, port = str(address[0]), address[1]
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.contextmanager
def _announced(url: str, file: Path | None) -> Iterator[None]:
    """Write the URL for whoever started us, complete or not at all, and take it back."""
    if file is not None:
        staged = file.with_name(f".{file.name}.{os.getpid()}")
        staged.write_text(url + "\n")
        staged.rename(file)
    try:
        yield
    finally:
        if file is not None:
            file.unlink(missing_ok=True)
