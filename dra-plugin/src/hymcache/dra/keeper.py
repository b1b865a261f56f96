"""The plugin's own loop: everything that must hold without a call of the kubelet.

Each turn looks at all claims of the node and makes true what their records say: what is prepared is reachable for pods,
with a CDI file and a region of the right epoch behind it, whatever was lost (a restart of the plugin, a reboot, a power
cycle of the appliance, an emptied /var/run/cdi); what is released is told to the operator; what belongs to nobody goes.
It also asks the cables, tells the kubelet their health, and writes the CXLNode's heartbeat - in the same loop, so that
a heartbeat says that the loop runs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import structlog
from hymcache.crds import CXLNode, CXLRegion
from hymcache.crds.node import Problem
from hymcache.crds.region import HostState
from hymcache.dra import health, heartbeat, plan, regions
from hymcache.dra.checkpoint.model import ClaimRecord, Phase, ShareRecord
from hymcache.dra.claims import cdi_document
from hymcache.dra.clients import ApiError
from hymcache.dra.contents import Found
from hymcache.dra.dax import Port
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.hosts import HostReport
from hymcache.dra.keys import ShareKey
from hymcache.dra.node import Node
from hymcache.dra.plan import Scrub, Share, Wanted
from hymcache.dra.releases import Releases

LOCK_SECONDS = 0.2  # the other generation's turn is over by then; a call of the kubelet may not be

log = structlog.get_logger()

Regions = Mapping[str, CXLRegion]
LookUp = tuple[CXLRegion | None, Wanted | str | None]
LookUps = dict[ShareKey, LookUp]
Reports = list[tuple[Share, CXLRegion, HostReport]]


class Keeper:
    """Runs in one thread. `turn` may be called by itself; it raises nothing but defects."""

    def __init__(
        self, node: Node, releases: Releases, board: health.HealthBoard, *, version: str, registered: Callable[[], bool]
    ) -> None:
        self._node = node
        self._releases = releases
        self._board = board
        self._version = version
        self._registered = registered
        self._stop = threading.Event()
        self._heartbeat_due = 0.0
        self._turned = time.monotonic()
        self.caught_up = False  # every claim was seen once, so this process serves what an earlier one did

    def run(self) -> None:
        """Turn until stopped. A defect in one turn is logged and does not end the loop."""
        while not self._stop.is_set():
            try:
                self.turn()
            except Exception:
                log.exception("a turn of the keeper failed")
            self._turned = time.monotonic()
            self._stop.wait(self._node.settings.sync_seconds)

    def stop(self) -> None:
        """End `run` after the present turn."""
        self._stop.set()

    def age_seconds(self) -> float:
        """Time since the last turn ended."""
        return time.monotonic() - self._turned

    def turn(self) -> None:
        """Look at everything once."""
        node = self._node
        regions_now = self._regions()
        ports = node.dax.ports()
        records, unreadable = node.checkpoint.all()
        busy = 0
        for record in records:
            with structlog.contextvars.bound_contextvars(claim=str(record.ref), claim_uid=record.ref.uid):
                busy += not self._tend_claim(record, regions_now)
        self.caught_up = self.caught_up or not busy
        self._sweep()
        records, unreadable = node.checkpoint.all()
        self._board.post(health.of_devices(records, {port.blade: port for port in ports}, now=int(time.time())))
        self._measure(records, ports, len(unreadable))
        if time.monotonic() >= self._heartbeat_due:
            self._beat(ports, heartbeat.checkpoint_problems(unreadable))

    def _regions(self) -> Regions | None:
        """All regions by name, None while the API server is away. One that cannot be parsed is left out."""
        try:
            raws = self._node.api.regions()
        except ApiError as error:
            log.warning("regions not read; going by the checkpoint", error=str(error))
            return None
        found = {}
        for raw in raws:
            try:
                region = regions.parse(raw)
            except ClaimError as error:
                log.warning("region not understood", error=str(error))
                continue
            found[region.metadata.name] = region
        return found

    def _tend_claim(self, record: ClaimRecord, regions_now: Regions | None) -> bool:
        """Tend one claim. False: a call of the kubelet, or the other generation, is at it; it is tended next time."""
        node, uid = self._node, record.ref.uid
        looks = self._look_ups(record, regions_now)
        reports: Reports = []
        try:
            with node.locks.hold(uid, seconds=LOCK_SECONDS):
                current = node.checkpoint.get(uid)
                if current is None:
                    return True
                if current != record:
                    log.debug("claim has changed; what was looked up may be older")
                    return False
                for entry in record.shares:
                    if entry.phase is Phase.RELEASING and regions_now is None:
                        continue  # the operator cannot be told
                    with structlog.contextvars.bound_contextvars(region=entry.share.region):
                        record = self._tend_share(record, entry, looks, reports)
                if record.of_phase(Phase.PREPARED):
                    self._repair_files(record)
        except ClaimError as error:
            if error.kind is not Kind.BUSY:
                raise
            log.debug("claim is busy", error=str(error))
            return False
        for share, region, report in reports:
            self._tell(record, share, region, report)
        return True

    def _look_ups(self, record: ClaimRecord, regions_now: Regions | None) -> LookUps:
        """What the regions of the prepared shares want of this node; without those that cannot be read."""
        found: LookUps = {}
        for entry in record.of_phase(Phase.PREPARED):
            try:
                found[entry.share.key] = self._look_up(entry, regions_now)
            except (ApiError, ClaimError) as error:
                log.warning("region not read", region=entry.share.region, error=str(error))
        return found

    def _tend_share(self, record: ClaimRecord, entry: ShareRecord, looks: LookUps, reports: Reports) -> ClaimRecord:
        """Under the claim's lock; what is to be told goes to `reports`, because telling may take long."""
        try:
            if entry.phase is Phase.RELEASING:
                return self._releases.release(record, entry)
            if entry.phase is Phase.PREPARED and entry.share.key in looks:
                return self._tend_prepared(record, entry, looks[entry.share.key], reports)
        except ApiError as error:
            log.warning("not told yet", error=str(error))
        except ClaimError as error:
            log.warning("share not in order", kind=error.kind, error=str(error))
        return record

    def _tend_prepared(self, record: ClaimRecord, entry: ShareRecord, look: LookUp, reports: Reports) -> ClaimRecord:
        """Open what is not open, replace what is of an older epoch, withdraw what the fabric took away."""
        node, share = self._node, entry.share
        region, found = look

        def tell(report: HostReport) -> None:
            if region is not None:
                reports.append((share, region, report))

        if not isinstance(found, Wanted):
            node.dax.withdraw(share.key)
            problem = f"taken from node {node.name} while pods may use it: waiting for {found}"
            tell(HostReport(HostState.FAILED, problem=problem))
            return record
        try:
            ready = self._hold(entry, found)
        except ClaimError as error:
            node.dax.withdraw(share.key)
            tell(HostReport(HostState.FAILED, problem=str(error)))
            raise
        if not ready:
            tell(HostReport(HostState.ATTACHING))
            return record
        if node.dax.publish(share.key):
            node.metrics.repairs.labels("socket").inc()
            log.info("socket put in place")
        if entry.wanted != found or record.boot_id != node.boot_id:
            record = replace(record.with_entry(replace(entry, wanted=found)), boot_id=node.boot_id)
            node.checkpoint.put(record)
        counters = node.contents.counters(node.dax.open(share.key, found), found)
        tell(HostReport(HostState.READY, epoch=found.epoch, scrubbed=found.vouched, counters=counters))
        return record

    def _look_up(self, entry: ShareRecord, regions_now: Regions | None) -> LookUp:
        """The share's region and what it wants of this node.

        The list is from before the record was read: where it disagrees with the record, a Prepare may have been faster,
        so the region is read again. Without the operator's fresh word nothing is cleared.
        """
        share, name = entry.share, self._node.name
        if regions_now is None:
            return None, replace(entry.wanted, scrub=Scrub.NONE) if entry.wanted else None
        region = regions_now.get(share.region)
        found = plan.wanted(region, share, name) if region else None
        if found == entry.wanted and found is not None:
            return region, found
        raw = self._node.api.region(share.region)
        if raw is None:
            return None, "its CXLRegion, which was deleted"
        region = regions.parse(raw)
        return region, plan.wanted(region, share, name)

    def _hold(self, entry: ShareRecord, wanted: Wanted) -> bool:
        """Have the region open and verified; False while it is blank and another host is to format it."""
        node, key = self._node, entry.share.key
        if node.dax.is_open(key, wanted):
            return True
        found = node.contents.prepare(node.dax.open(key, wanted), wanted)
        if found is Found.BLANK:
            node.dax.withdraw(key)
            return False
        node.metrics.repairs.labels("region").inc()
        log.info("region opened again", epoch=wanted.epoch, formatted=found is Found.FORMATTED)
        if found is Found.FORMATTED:
            node.metrics.formats.inc()
        return True

    def _tell(self, record: ClaimRecord, share: Share, region: CXLRegion, report: HostReport) -> None:
        entry = regions.entry_of(region, self._node.name)
        try:
            self._node.hosts.refresh(
                share.region, report, found=entry, still=lambda: self._node.checkpoint.get(record.ref.uid) == record
            )
        except ApiError as error:
            log.warning("not told yet", region=share.region, error=str(error))

    def _repair_files(self, record: ClaimRecord) -> None:
        if self._node.cdi.write(record.ref.uid, cdi_document(record, self._node)):
            self._node.metrics.repairs.labels("cdi").inc()
            log.info("CDI file put in place")

    def _sweep(self) -> None:
        """Remove what claims without a record have left: an earlier release's, a lost checkpoint's, a killed process's.

        Those are CDI files, sockets, and the locks of a process that died between its last write and the end of its
        turn: nobody calls for such a claim any more. While a checkpoint is unreadable the sockets stay: which of them
        are its claim's cannot be told.
        """
        node = self._node
        for uid in node.cdi.claims() | node.locks.claims():
            if node.checkpoint.get(uid) is None:
                try:
                    with node.locks.hold(uid, seconds=0):
                        if node.checkpoint.get(uid) is None and node.cdi.remove(uid):
                            log.warning("CDI file without a claim removed", claim_uid=uid)
                except ClaimError:
                    continue  # a call of the kubelet is at it
        for region in node.reports.names():
            with contextlib.suppress(ClaimError), node.reports.hold(region, seconds=0):
                pass
        if not node.checkpoint.all()[1]:
            removed = node.dax.sweep(
                lambda: [entry.share.key for record in node.checkpoint.all()[0] for entry in record.shares]
            )
            if removed:
                log.warning("sockets without a claim removed", count=removed)

    def _measure(self, records: list[ClaimRecord], ports: list[Port], unreadable: int) -> None:
        metrics = self._node.metrics
        for phase in Phase:
            metrics.claims.labels(phase.value).set(sum(bool(record.of_phase(phase)) for record in records))
        metrics.unreadable.set(unreadable)
        metrics.cable_up.clear()
        for port in ports:
            metrics.cable_up.labels(port.blade).set(port.up)

    def _beat(self, ports: list[Port], problems: list[Problem]) -> None:
        node = self._node
        try:
            raw = node.api.node(node.name)
            known = CXLNode.read(raw) if raw else None
            problems = [*heartbeat.cable_problems(ports, node.settings.cable_dir, known), *problems]
            status = heartbeat.status(
                boot_id=node.boot_id,
                version=self._version,
                registered=self._registered(),
                ports=ports,
                problems=problems,
                now=datetime.now(UTC),
            )
            node.api.apply_node(node.name, status)
        except ApiError as error:
            log.warning("heartbeat not written", error=str(error))
            return
        self._heartbeat_due = time.monotonic() + node.settings.heartbeat_seconds
        node.metrics.heartbeat.set_to_current_time()
