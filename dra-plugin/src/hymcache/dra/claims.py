"""Prepare and Unprepare of a claim: the effects, in an order that any crash may cut.

Prepare, per claim:
  1. lock: read the claim and its regions afresh, check that it may use them, write `WANTED` to the checkpoint
  2. no lock: ask for the attachment (own `status.hosts` entry) and wait for the operator
  3. lock: still wanted? open the region, verify or format it (repeated without the lock while another host formats)
  4. lock: still wanted? socket, CDI file, `PREPARED`; then tell the operator `Ready` and answer
Unprepare, per claim, from own state alone:
  1. lock: `RELEASING`, CDI file away, then for each share: no user left? close, tell the operator, forget

The lock is never held while waiting for anybody else, so Unprepare waits neither for Prepare's wait nor for a report
that hangs; a Prepare that was overtaken finds its ticket gone from the checkpoint and stops. What fails in Unprepare
after the pods are safe is finished by the keeper.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import structlog
from hymcache.crds import CXLRegion
from hymcache.crds.region import Desired, HostState
from hymcache.dra import cdi, plan, regions
from hymcache.dra.calls import Call
from hymcache.dra.checkpoint.model import ClaimRecord, Phase, ShareRecord
from hymcache.dra.checkpoint.store import Unreadable
from hymcache.dra.clients import ApiError, Object
from hymcache.dra.contents import Found
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.hosts import HostReport
from hymcache.dra.node import Node
from hymcache.dra.plan import ClaimRef, Share, Wanted
from hymcache.dra.releases import Releases

WATCH_SECONDS = 5.0  # after each, a waiting Prepare looks whether anybody still waits for it
BLANK_POLL_SECONDS = 0.1
BLANK_REREAD_SECONDS = 2.0  # the init role may move to this host while it waits for another one's superblock

log = structlog.get_logger()


@dataclass(frozen=True)
class PreparedDevice:
    """One device of a claim, as the kubelet hears of it."""

    request: str
    pool: str
    device: str
    share_id: str | None
    cdi_id: str


class Claims:
    """Prepare and Unprepare. Thread-safe; any number of calls for one claim may overlap, in two processes too."""

    def __init__(self, node: Node, releases: Releases) -> None:
        self._node = node
        self._releases = releases

    def prepare(self, ref: ClaimRef, call: Call) -> list[PreparedDevice]:
        """Make the claim's regions usable by its pods on this node, and say as which devices. Idempotent.

        Blocks until the deadline of `call` if the operator or the init host needs that long.

        Raises:
            ClaimError: not now, or not at all; the message goes into an event on the pod.
        """
        with self._phase("claim"):
            record = self._begin(ref, call)
        for entry in record.of_phase(Phase.WANTED, Phase.PREPARED):
            with structlog.contextvars.bound_contextvars(region=entry.share.region):
                self._prepare_share(record, entry.share, call)
        with self._phase("publish"):
            done = self._finish(record, call)
        self._tell_ready(done)
        return devices(done, self._node.settings.driver)

    def _begin(self, ref: ClaimRef, call: Call) -> ClaimRecord:
        """Step 1: what the kubelet asks for is right, and is written down."""
        node = self._node
        with node.locks.hold(ref.uid, seconds=call.left(), check=call.check):
            call.check()
            shares = plan.shares_of(self._claim(ref), ref, node.settings.driver)
            for share in shares:
                plan.check_permission(regions.parse(regions.fetch(node.api, share.region)), ref)
            before = node.checkpoint.get(ref.uid)
            if isinstance(before, Unreadable):
                log.warning("the claim's checkpoint is unreadable; preparing it anew", reason=before.reason)
                before = None
            record = plan_record(before, ref, shares, node.boot_id)
            if record != before:
                node.checkpoint.put(record)
            return record

    def _claim(self, ref: ClaimRef) -> Object:
        try:
            claim = self._node.api.claim(ref.namespace, ref.name)
        except ApiError as error:
            raise ClaimError(Kind.API, str(error)) from error
        if claim is None:
            raise ClaimError(Kind.FOREIGN, f"claim {ref} does not exist any more; its pod cannot start")
        return claim

    def _prepare_share(self, record: ClaimRecord, share: Share, call: Call) -> None:
        """Steps 2 and 3, with a report of what went wrong in the region's status."""
        try:
            with self._phase("attach"):
                wanted = self._attach(record, share, call)
            with self._phase("open"):
                self._open(record, share, wanted, call)
        except ClaimError as error:
            if error.kind in {Kind.FABRIC, Kind.REGION}:
                self._tell(record, share, HostReport(HostState.FAILED, problem=str(error)))
            raise

    def _attach(self, record: ClaimRecord, share: Share, call: Call) -> Wanted:
        """Step 2: ask the operator for the attachment and wait for it."""
        node = self._node
        raw = regions.fetch(node.api, share.region)
        while True:
            region = regions.parse(raw)
            self._ask(record, share, region, call)
            found = plan.wanted(region, share, node.name)
            if isinstance(found, Wanted):
                return found
            if call.left() <= 0:
                raise ClaimError(
                    Kind.WAITING,
                    f"region {share.region} is not attached to node {node.name} yet: waiting for {found}; "
                    f"the kubelet tries again",
                )
            self._check_current(record, call)
            raw = self._region_after(share.region, regions.version(raw), min(call.left(), WATCH_SECONDS))

    def _ask(self, record: ClaimRecord, share: Share, region: CXLRegion, call: Call) -> None:
        """Write the wish to be attached, unless it stands there.

        What took the wish away may be an Unprepare: then nothing is written, and this call is over.
        """
        entry = regions.entry_of(region, self._node.name)
        stands = (
            entry is not None
            and entry.boot_id == self._node.boot_id
            and entry.state in {HostState.ATTACHING, HostState.READY}
            and entry.desired is Desired.ATTACHED
        )
        if stands:
            return
        self._check_current(record, call)
        wish = HostReport(HostState.ATTACHING)
        try:
            self._node.hosts.send(
                share.region,
                wish,
                still=lambda: self._node.checkpoint.stands(record, share.key),
                seconds=max(call.left(), 1.0),
            )
        except ApiError as error:
            raise ClaimError(Kind.API, str(error)) from error

    def _region_after(self, name: str, version: str, seconds: float) -> Object:
        try:
            raw = self._node.api.region_after(name, version, seconds)
        except ApiError as error:
            raise ClaimError(Kind.API, str(error)) from error
        if raw is None:
            raise ClaimError(Kind.WAITING, f"CXLRegion {name} was deleted; the operator makes another if it is needed")
        return raw

    def _open(self, record: ClaimRecord, share: Share, wanted: Wanted, call: Call) -> None:
        """Step 3: open, then verify or format; again while another host has yet to format."""
        node = self._node
        read = time.monotonic()
        while True:
            with self._current(record, call) as current:
                entry = current.entry(share.key)
                if entry is None:
                    raise overtaken(record.ref)
                if entry.wanted != wanted:
                    node.checkpoint.put(current.with_entry(replace(entry, wanted=wanted)))
                found = node.contents.prepare(node.dax.open(share.key, wanted), wanted)
            if found is not Found.BLANK:
                if found is Found.FORMATTED:
                    node.metrics.formats.inc()
                    log.info("region formatted", epoch=wanted.epoch, uuid=wanted.uuid)
                return
            if call.left() <= 0:
                raise ClaimError(
                    Kind.WAITING,
                    f"region {share.region} is attached to node {node.name} but not formatted yet: its init host has "
                    f"not prepared it; the kubelet tries again",
                )
            time.sleep(BLANK_POLL_SECONDS)
            if time.monotonic() - read > BLANK_REREAD_SECONDS:
                wanted = self._attach(record, share, call)
                read = time.monotonic()

    def _finish(self, record: ClaimRecord, call: Call) -> ClaimRecord:
        """Step 4: give it to the pods."""
        node = self._node
        with self._current(record, call) as current:
            done = current
            for entry in current.of_phase(Phase.WANTED, Phase.PREPARED):
                node.dax.publish(entry.share.key)
                done = done.with_entry(replace(entry, phase=Phase.PREPARED))
            node.cdi.write(record.ref.uid, cdi_document(done, node))
            if done != current:
                node.checkpoint.put(done)
            log.info("claim prepared", shares=len(done.of_phase(Phase.PREPARED)))
            return done

    @contextlib.contextmanager
    def _current(self, record: ClaimRecord, call: Call) -> Iterator[ClaimRecord]:
        """The claim's lock, and its record as it is now, if this call may still act on it."""
        with self._node.locks.hold(record.ref.uid, seconds=max(call.left(), 1.0), check=call.check):
            yield self._check_current(record, call)

    def _check_current(self, record: ClaimRecord, call: Call) -> ClaimRecord:
        call.check()
        now = self._node.checkpoint.get(record.ref.uid)
        if not isinstance(now, ClaimRecord) or now.ticket != record.ticket:
            raise overtaken(record.ref)
        return now

    def _tell_ready(self, record: ClaimRecord) -> None:
        for entry in record.of_phase(Phase.PREPARED):
            if entry.wanted is None:
                continue
            report = HostReport(HostState.READY, epoch=entry.wanted.epoch, scrubbed=entry.wanted.vouched)
            if not self._node.hosts.said(entry.share.region, report):  # the keeper may have been faster
                self._tell(record, entry.share, report)

    def _tell(self, record: ClaimRecord, share: Share, report: HostReport) -> None:
        """Report as far as possible now; the keeper reports again."""
        try:
            self._node.hosts.send(share.region, report, still=lambda: self._node.checkpoint.stands(record, share.key))
        except ApiError as error:
            log.warning("host entry not written; it is tried again", region=share.region, error=str(error))

    def unprepare(self, ref: ClaimRef) -> None:
        """Take the claim from this node. Idempotent; a claim that is not known is done. Reads no object of the API.

        Raises:
            ClaimError: BUSY, a call for the claim is running, or processes still use a region; API, only for a claim
                whose checkpoint is unreadable.
        """
        node = self._node
        with node.locks.hold(ref.uid, seconds=node.settings.unprepare_wait_seconds):
            record = node.checkpoint.get(ref.uid)
            if isinstance(record, Unreadable):
                try:
                    self._releases.release_unreadable(record)
                except ApiError as error:
                    raise ClaimError(Kind.API, str(error)) from error
                return
            if record is None:  # perhaps a crash has left something all the same
                node.cdi.remove(ref.uid)
                node.checkpoint.remove(ref.uid)
                return
            going = replace(record, shares=tuple(replace(entry, phase=Phase.RELEASING) for entry in record.shares))
            node.checkpoint.put(going)
            node.cdi.remove(ref.uid)
            for entry in going.shares:
                with structlog.contextvars.bound_contextvars(region=entry.share.region):
                    going = self._try_release(going, entry)

    def _try_release(self, record: ClaimRecord, entry: ShareRecord) -> ClaimRecord:
        try:
            return self._releases.release(record, entry)
        except ApiError as error:
            log.warning("released here, the operator is told later", error=str(error))
            return record

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._node.metrics.phases.labels(name).observe(time.monotonic() - started)


def overtaken(ref: ClaimRef) -> ClaimError:
    """The error of a Prepare whose claim was unprepared while it waited."""
    return ClaimError(Kind.STOPPED, f"claim {ref} was unprepared on this node meanwhile; nothing was prepared")


def plan_record(before: ClaimRecord | None, ref: ClaimRef, shares: tuple[Share, ...], boot_id: str) -> ClaimRecord:
    """The record of a claim that holds `shares` now. Pure but for the ticket of a new one.

    A share that the claim does not hold any more (it was deallocated behind the kubelet's back and allocated anew) is
    released; one that was on its way out and is asked for again begins anew.
    """
    known = {entry.share.key: entry for entry in before.shares} if before else {}
    held: list[ShareRecord] = []
    for share in shares:
        entry = known.pop(share.key, None)
        keep = entry is not None and entry.phase is not Phase.RELEASING
        held.append(replace(entry, share=share) if keep and entry else ShareRecord(share))
    gone = [replace(entry, phase=Phase.RELEASING) for entry in known.values()]
    fresh = before is None or all(entry.phase is Phase.RELEASING for entry in before.shares)
    ticket = before.ticket if before is not None and not fresh else uuid.uuid4().hex
    return ClaimRecord(ref, boot_id, ticket, (*held, *gone))


def devices(record: ClaimRecord, driver: str) -> list[PreparedDevice]:
    """The prepared devices, in the order of the shares; pure."""
    return [
        PreparedDevice(
            entry.share.request,
            entry.share.pool,
            entry.share.device,
            entry.share.share_id,
            cdi.device_id(driver, entry.share.key),
        )
        for entry in record.of_phase(Phase.PREPARED)
    ]


def cdi_document(record: ClaimRecord, node: Node) -> Object:
    """The CDI document of the record's prepared shares."""
    return cdi.build(
        node.settings.driver,
        record.ref,
        {
            entry.share.key: (entry.share.region, node.dax.edits(entry.share.key, entry.wanted))
            for entry in record.of_phase(Phase.PREPARED)
            if entry.wanted is not None
        },
    )
