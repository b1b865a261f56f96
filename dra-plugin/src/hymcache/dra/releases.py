"""Giving a share back: no user left, closed, operator told, forgotten - in that order, from own state alone."""

from __future__ import annotations

import structlog
from hymcache.crds.region import HostState
from hymcache.dra.checkpoint.model import ClaimRecord, Phase, ShareRecord
from hymcache.dra.checkpoint.store import Unreadable
from hymcache.dra.errors import ClaimError, Kind
from hymcache.dra.hosts import HostReport
from hymcache.dra.keys import ShareKey
from hymcache.dra.node import Node

log = structlog.get_logger()


class Releases:
    """Callers hold the claim's lock. Every step may be cut and run again."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def release(self, record: ClaimRecord, entry: ShareRecord) -> ClaimRecord:
        """Let go of a `RELEASING` share; the record that is left, without it. The file goes with the last share.

        Raises:
            ClaimError: BUSY, processes of this host still have the region open. Nothing was taken from them.
            ApiError: everything is done here but the operator does not know yet.
        """
        node, key = self._node, entry.share.key
        self._check_unused(entry)
        node.dax.close(key)
        if not self._used_by_others(key, entry.share.region):
            node.hosts.send(entry.share.region, HostReport(HostState.RELEASED), still=lambda: True)
        left = record.without(key)
        if left.shares:
            node.checkpoint.put(left)
        else:
            node.checkpoint.remove(record.ref.uid)
        log.info("share released", region=entry.share.region)
        return left

    def release_unreadable(self, unreadable: Unreadable) -> None:
        """Let go of a claim whose checkpoint tells nothing: by its CDI file, and by what the CXLRegions say.

        Raises:
            ApiError: the regions could not be read or written, and nothing else remembers them. Call again.
        """
        node, uid = self._node, unreadable.uid
        named = node.cdi.regions(uid)
        regions = set(named.values())
        for raw in node.api.regions():
            owner = raw.get("spec", {}).get("claimRef") or {}
            if owner.get("uid") == uid:
                regions.add(raw["metadata"]["name"])
        for key in named:
            node.dax.close(key)
        for region in sorted(regions):
            if not self._used_by_others(ShareKey(uid, ""), region):
                node.hosts.send(region, HostReport(HostState.RELEASED), still=lambda: True)
        node.cdi.remove(uid)
        node.checkpoint.remove(uid)
        log.warning("claim released without its checkpoint", reason=unreadable.reason, regions=sorted(regions))

    def _check_unused(self, entry: ShareRecord) -> None:
        """Refuse while processes use the region, unless another claim is theirs as well.

        One that cannot be opened any more was taken by the fabric.
        """
        node, wanted = self._node, entry.wanted
        if wanted is None:
            return
        if node.contents.is_clearing(wanted):
            raise ClaimError(
                Kind.BUSY,
                f"region {entry.share.region} is being cleared on node {node.name}; wait, the kubelet calls again",
            )
        if self._used_by_others(entry.share.key, entry.share.region):
            return  # its processes cannot be told from this one's, and the region stays
        try:
            users = node.contents.users(node.dax.open(entry.share.key, wanted), wanted)
        except ClaimError:
            return
        if users:
            raise ClaimError(
                Kind.BUSY,
                f"region {entry.share.region} is still open in {users} processes on node {node.name}; end them, the "
                f"kubelet calls again",
            )

    def _used_by_others(self, key: ShareKey, region: str) -> bool:
        """Whether another claim of this node holds the same region: the entry in `status.hosts` is for all of them."""
        records, _ = self._node.checkpoint.all()
        return any(
            entry.share.region == region and entry.share.key != key
            for record in records
            if record.ref.uid != key.claim_uid or key.share
            for entry in record.of_phase(Phase.WANTED, Phase.PREPARED)
        )
