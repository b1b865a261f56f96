"""This node's CXLNode: that the plugin lives, what it is cabled to, and what is wrong with the node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from hymcache.crds import CXLNode, names
from hymcache.crds.node import CXLNodeStatus, NodePort, Problem
from hymcache.dra.checkpoint.store import Unreadable
from hymcache.dra.clients import Object
from hymcache.dra.dax import Port

MESSAGE_LENGTH_MAX = 1024
PORTS_MAX = 64


def status(
    *,
    boot_id: str,
    version: str,
    registered: bool,
    ports: Sequence[Port],
    problems: Iterable[Problem],
    now: datetime,
) -> Object:
    """The status of the CXLNode; pure. One problem per code, since the list is keyed by it."""
    found = {problem.code: problem for problem in problems}
    up = sum(port.up for port in ports)
    return CXLNodeStatus(
        boot_id=boot_id,
        plugin_version=version,
        registered=registered,
        heartbeat=now.replace(microsecond=0),
        ports=[
            NodePort(
                blade=port.blade,
                state="Up" if port.up else "Down",
                message=port.message[:MESSAGE_LENGTH_MAX] or None,
            )
            for port in ports[:PORTS_MAX]
        ],
        ports_up=f"{up}/{len(ports)}",
        problems=list(found.values()),
        message=next((problem.message for problem in found.values()), None),
    ).dump()


def problem(code: str, message: str) -> Problem:
    """A problem whose message fits."""
    return Problem(code=code, message=message[:MESSAGE_LENGTH_MAX])


def cable_problems(ports: Sequence[Port], cable_dir: Path, node: CXLNode | None) -> list[Problem]:
    """Cables that are missing, silent, or those of another host; pure.

    Another host's cable would let this node use what the fabric connected to that one.
    """
    found = []
    if not ports:
        found.append(
            problem(
                "NoCable",
                f"no cable socket <blade>.sock in {cable_dir}; connect an appliance, or take the plugin off this node",
            )
        )
    silent = [port for port in ports if not port.up]
    if silent:
        blades = ", ".join(f"{port.blade} ({port.message})" for port in silent)
        found.append(problem("CableDown", f"no answer from {blades}; check the appliance and its link"))
    own = node.spec.system_uuid if node else None
    for port in ports:
        if own and port.host and names.system_uuid_key(own) != names.system_uuid_key(port.host):
            message = (
                f"the cable to blade {port.blade} belongs to host {port.host}, this node is {own}; "
                f"mount this host's own cable folder"
            )
            found.append(problem("WrongCable", message))
    return found


def checkpoint_problems(unreadable: Sequence[Unreadable]) -> list[Problem]:
    """Claims whose checkpoint cannot be read; pure."""
    if not unreadable:
        return []
    claims = "; ".join(f"{entry.uid}: {entry.reason}" for entry in unreadable)
    return [
        problem(
            "CheckpointUnreadable",
            f"running pods of these claims keep their memory, new containers of them cannot start until the pods are "
            f"re-created: {claims}",
        )
    ]
