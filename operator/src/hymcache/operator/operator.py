"""One operator process: wait for the Lease, take over, then watch and reconcile until it is lost or a signal comes."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import kopf
from hymcache.operator.clients import connect
from hymcache.operator.clients.api import Api, ConflictError, DeposedError
from hymcache.operator.clients.events import Events
from hymcache.operator.clients.kinds import FABRIC, REGION
from hymcache.operator.clock import SystemClock
from hymcache.operator.fabric.session import Sessions
from hymcache.operator.handlers import watch
from hymcache.operator.health import HealthServer
from hymcache.operator.leader import Leader, take_over
from hymcache.operator.log import note
from hymcache.operator.metrics import Metrics
from hymcache.operator.reconcile import blade, claim, fabric, node
from hymcache.operator.reconcile.context import Context
from hymcache.operator.reconcile.region import reconcile as region
from hymcache.operator.resync import Resync
from hymcache.operator.settings import Settings
from hymcache.operator.store import Store
from hymcache.operator.workqueue import Key, WorkQueue

log = logging.getLogger(__name__)

EXIT_OK, EXIT_DEPOSED = 0, 3

Reconciler = Callable[[Context, str], Awaitable[float | None]]
RECONCILERS: dict[str, Reconciler] = {
    "fabric": fabric.reconcile,
    "blade": blade.reconcile,
    "touch": blade.touch,
    "claim": claim.reconcile,
    "region": region.reconcile,
    "node": node.reconcile,
}


class Operator:
    """Wires everything; holds no logic of its own.

    Args:
        settings: as read from the command line.
        kubeconfig: file, or None for the pod's service account.
        after_write: called after every write to the API server or a fabric; tests of crashes end the process there.
    """

    def __init__(
        self, settings: Settings, kubeconfig: str | None = None, after_write: Callable[[str], None] = lambda _: None
    ) -> None:
        self.settings = settings
        self._kubeconfig = kubeconfig
        self._after_write = after_write
        self.clock = SystemClock()
        self.metrics = Metrics()
        self.store = Store()
        self._resync: Resync | None = None
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Returns the exit status."""
        configuration = await connect.configuration(self._kubeconfig)
        transport = connect.KubernetesTransport(configuration, self.settings.request_timeout_seconds)
        api = Api(transport, after_write=self._after_write)
        leader = Leader(api, self.settings, self.clock)
        health = HealthServer(self.settings.health_address, self.metrics, self._problem)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        await health.start()
        log.info("candidate %s, health on %s", leader.holder, health.url)
        try:
            generation = await self._until_stopped(leader.acquire())
            if generation is None:
                return EXIT_OK
            api.generation = generation
            self.metrics.leader.set(1)
            self.metrics.generation.set(generation)
            deposed: BaseException | None = None
            try:
                await self._lead(api, leader, generation, lambda: connect.kopf_login(configuration))
            except* DeposedError as group:
                deposed = group.exceptions[0]
            if deposed is not None:
                log.critical("no longer the leader: %s", deposed)
                return EXIT_DEPOSED
            await leader.release(generation)
            log.info("stopped; the lease is free")
            return EXIT_OK
        finally:
            self.metrics.leader.set(0)
            await health.stop()
            await api.close()

    async def _until_stopped(self, work: Awaitable[int]) -> int | None:
        """The result of `work`, or None when a signal came first."""
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            return task.result()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return None

    async def _lead(
        self, api: Api, leader: Leader, generation: int, login: Callable[[], Awaitable[kopf.ConnectionInfo]]
    ) -> None:
        queue = WorkQueue(
            self._reconcile,
            workers=self.settings.workers,
            retry_seconds=self.settings.retry_seconds,
            retry_max_seconds=self.settings.retry_max_seconds,
            fatal=(DeposedError,),
            stale=(ConflictError,),
        )
        self._ctx = Context(
            settings=self.settings,
            api=api,
            store=self.store,
            sessions=Sessions(),
            events=Events(api, self.clock, leader.holder),
            metrics=self.metrics,
            clock=self.clock,
            wake=queue.wake,
            api_healthy_since=lambda: leader.healthy_since,
            after_write=self._after_write,
        )
        self._resync = Resync(api, self.store, self.settings, self.metrics, queue.wake)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(leader.hold(generation), name="lease")]
            await take_over(api, generation)
            await self._resync.fill()
            for body in self.store.all(FABRIC):
                queue.wake(Key("fabric", body["metadata"]["name"]))
            tasks += [
                group.create_task(queue.run(), name="reconcile"),
                group.create_task(self._resync.run(), name="resync"),
                group.create_task(self._gauges(queue), name="gauges"),
            ]
            await kopf.operator(
                registry=watch.registry(self.store, queue.wake, login),
                settings=watch.operator_settings(self.settings),
                standalone=True,
                clusterwide=True,
                stop_flag=self._stop,
            )
            for task in tasks:
                task.cancel()
        for session in self._ctx.sessions.all():
            await session.client.close()

    async def _reconcile(self, key: Key) -> float | None:
        started, outcome = time.monotonic(), "ok"
        self._note(key)
        try:
            return await RECONCILERS[key.kind](self._ctx, key.name)
        except Exception:
            outcome = "error"
            raise
        finally:
            self.metrics.reconciles.labels(key.kind, outcome).inc()
            self.metrics.reconcile_seconds.labels(key.kind).observe(time.monotonic() - started)

    def _note(self, key: Key) -> None:
        """What the work is about, in every line of this task: also in the queue's own, after a failure."""
        note(**{"blade" if key.kind == "touch" else key.kind: key.name})
        found = self.store.get(REGION, key.name) if key.kind == "region" else None
        if found is not None and (ref := found["spec"].get("claimRef")):
            note(claim=f"{ref['namespace']}/{ref['name']}")

    async def _gauges(self, queue: WorkQueue) -> None:
        """Numbers that are counted, not added up."""
        while True:
            await asyncio.sleep(5.0)
            region.measure(self._ctx)
            self.metrics.queued.set(len(queue))

    def _problem(self) -> str | None:
        if self._resync is not None and not self._resync.healthy:
            return "the watch does not show what the API server lists"
        return None
