"""A small cluster with HyMCache in it: blades, nodes with a plugin each, one operator. Everything ends with it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from controlplane import workloads as w
from controlplane.actors import NodeActor
from controlplane.api import CLAIM, EVENT, NODE, POD, SLICE, Api, Object
from controlplane.appliances import Appliance
from controlplane.operators import BLADE, CXLNODE, REGION, Operator, add_fabric, remove_all
from controlplane.plane import ControlPlane
from controlplane.waiting import wait

SETTLED_SECONDS = 120.0
"""Until pods have their nodes, or all is released: below the 300 s after which the scheduler retries forgotten pods."""


class Stage:
    """What a scenario has to its hand."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self.plane = plane
        self.api: Api = plane.api
        self.namespace = namespace
        self.folder = folder
        self.appliances: dict[str, Appliance] = {}
        self.actors: dict[str, NodeActor] = {}
        self.uuids: dict[str, str] = {}
        self.lease = f"lease-{namespace}"
        self.operator: Operator
        self._stack = ExitStack()

    # --- parts -------------------------------------------------------------------------------------------------------
    def node_name(self, short: str) -> str:
        """Nodes are cluster-wide: a test's carry its namespace."""
        return f"{self.namespace}-{short}"

    def blade_name(self, short: str) -> str:
        """The same for blades."""
        return f"{self.namespace}-{short}"

    def build(
        self, *, blades: tuple[str, ...] = ("b1",), nodes: tuple[str, ...] = ("n1", "n2"), **options: str
    ) -> None:
        """Nodes, appliances cabled to all of them, plugins."""
        for node in nodes:
            self.uuids[node] = str(uuid.uuid4())
            w.add_node(self.api, self.node_name(node), system_uuid=self.uuids[node])
        for blade in blades:
            cables = {node: self.uuids[node] for node in nodes}
            appliance = Appliance(self.folder / blade, self.blade_name(blade), cables, **options)
            self.appliances[blade] = self._stack.enter_context(appliance)
        for node in nodes:
            self.add_actor(node)

    def add_actor(self, node: str) -> NodeActor:
        """The plugin of a node that exists."""
        cables = [appliance.cables for appliance in self.appliances.values()]
        actor = NodeActor(self.plane, self.node_name(node), self.uuids[node], cables)
        self.actors[node] = actor
        actor.start()
        self._stack.callback(actor.stop)
        return actor

    def start_operator(
        self,
        name: str = "operator",
        entry: str = "hymcache.operator.main:main",
        env: Mapping[str, str] | None = None,
        **settings: str,
    ) -> Operator:
        """One more operator for the same Lease. They count as one pod's processes unless `identity` says otherwise."""
        found = Operator(
            self.plane,
            self.folder,
            lease=self.lease,
            settings={key.replace("_", "-"): value for key, value in settings.items()},
            entry=entry,
            name=name,
            env=env,
        )
        self._stack.callback(found.process.kill)  # nothing of it is needed any more, so it need not end cleanly
        found.start()
        self.operator = found
        return found

    def add_fabrics(self, **spec: object) -> None:
        """A CXLFabric for each appliance."""
        for appliance in self.appliances.values():
            add_fabric(self.api, appliance, **spec)

    def wait_published(self) -> None:
        """Until every blade has its slice and every node its labels."""
        for blade in self.appliances:
            self.wait_slice(blade, lambda devices: bool(devices))
        labels = {f"hymcache.io/blade-{self.blade_name(blade)}" for blade in self.appliances}

        def labelled() -> bool:
            nodes = [self.api.get(NODE, self.node_name(node)) for node in self.actors]
            return all(labels <= set(node["metadata"].get("labels") or {}) for node in nodes)

        wait("the nodes' blade labels", labelled)

    def close(self) -> None:
        """End everything, the operator first."""
        self._stack.close()
        for body in self.api.list(POD, self.namespace):
            w.remove(self.api, body["metadata"]["name"], self.namespace)
        for body in self.api.list(CLAIM, self.namespace):
            if body.get("status"):  # the others go with the namespace
                self.api.delete(CLAIM, body["metadata"]["name"], self.namespace)
        remove_all(self.api)
        wait("the slices to go", lambda: not self.slices())

    # --- looking -----------------------------------------------------------------------------------------------------
    def slices(self) -> list[Object]:
        """Slices of the driver."""
        return [s for s in self.api.list(SLICE) if s["spec"]["driver"] == "hymcache.io"]

    def wait_slice(self, blade: str, right: Callable[[list[Object]], bool]) -> Object:
        """The slice of a blade, once its devices are right."""

        def probe() -> Object | None:
            body = self.api.get(SLICE, f"hymcache-{self.blade_name(blade)}")
            return body if right(body["spec"].get("devices") or []) else None

        return wait(f"the slice of {blade}", probe)

    def claim(self, name: str, size: str, **parameters: object) -> Object:
        """Make a claim; `parameters` are those of its RegionConfig."""
        body = w.claim(name, size, namespace=self.namespace)
        if parameters:
            config = {"apiVersion": "hymcache.io/v1alpha1", "kind": "RegionConfig", **parameters}
            body["spec"]["devices"]["config"] = [{"opaque": {"driver": "hymcache.io", "parameters": config}}]
        return self.api.create(body)

    def pod(self, name: str, *claims: str, node: str | None = None) -> Object:
        """Make a pod, pinned to a node or not."""
        where = self.node_name(node) if node else None
        return self.api.create(w.pod(name, namespace=self.namespace, claims=claims, node=where))

    def allocation(self, claim: str) -> Object:
        """First allocation result of a claim; LookupError while there is none."""
        found = w.allocation(self.api.get(CLAIM, claim, self.namespace))
        if found is None:
            raise LookupError(f"claim {claim} is not allocated")
        return found

    def composed(self, claim: str) -> bool:
        """Whether the operator has told the scheduler that the claim's region stands."""
        devices = self.api.get(CLAIM, claim, self.namespace)["status"].get("devices") or []
        return any(c["type"] == "hymcache.io/RegionComposed" for d in devices for c in d.get("conditions") or [])

    def region_name(self, claim: str) -> str:
        """Name of the region of a claim's allocation; LookupError while there is none."""
        return f"r-{self.allocation(claim)['shareID']}"

    def region(self, claim: str) -> Object:
        """The region of a claim's allocation; an error while there is none."""
        return self.api.get(REGION, self.region_name(claim))

    def phase(self, claim: str) -> str | None:
        """Phase of that region."""
        found: str | None = self.region(claim).get("status", {}).get("phase")
        return found

    def bound(self, *pods: str) -> bool:
        """Whether the pods have their nodes."""
        return all(self.api.get(POD, pod, self.namespace)["spec"].get("nodeName") for pod in pods)

    def wait_bound(self, *pods: str) -> None:
        """Until they have."""
        wait(f"pods {', '.join(pods)} to be bound", lambda: self.bound(*pods), seconds=SETTLED_SECONDS)

    def remove_pods(self, *pods: str) -> None:
        """Delete pods at once."""
        for pod in pods:
            w.remove(self.api, pod, self.namespace)

    def events(self, reason: str) -> list[Object]:
        """Events with a reason, of the test's objects and of cluster-wide ones."""
        return [event for event in self.api.list(EVENT) if event.get("reason") == reason]

    def errors(self) -> list[str]:
        """What went wrong in the nodes."""
        return [error for actor in self.actors.values() for error in actor.errors]

    def wait_nothing_left(self) -> None:
        """Until no region is left, neither as an object nor on any fabric."""

        def nothing() -> bool:
            left = [r for appliance in self.appliances.values() for r in appliance.regions()]
            return not self.api.list(REGION) and not left

        wait("regions to be released", nothing, seconds=SETTLED_SECONDS)


@contextmanager
def staged(plane: ControlPlane, namespace: str, folder: Path) -> Iterator[Stage]:
    """A stage that is taken down at the end."""
    stage = Stage(plane, namespace, folder)
    try:
        yield stage
    finally:
        stage.close()


__all__ = ["BLADE", "CXLNODE", "REGION", "SETTLED_SECONDS", "Stage", "staged"]
