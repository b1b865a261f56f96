"""Random lives of a region with crashes in them: what must never happen does not, and in the end nothing is left."""

from __future__ import annotations

from hymcache.crds.region import AttachmentPhase, HostState
from hymcache.operator.reconcile.region import steps
from hymcache.operator.reconcile.region.view import Need
from hypothesis import given, settings
from hypothesis import strategies as st
from region_world import World, blade

NODES = ("n1", "n2", "n3")

EVENTS = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(NODES)),
    st.tuples(st.just("no-pod"), st.sampled_from(NODES)),
    st.tuples(st.just("plugin"), st.sampled_from(NODES)),
    st.tuples(st.just("link-down"), st.sampled_from(NODES)),
    st.tuples(st.just("link-up"), st.sampled_from(NODES)),
    st.tuples(st.just("dies"), st.sampled_from(NODES)),
    st.tuples(st.just("power"), st.just("")),
    st.tuples(st.just("time"), st.just("")),
    st.tuples(st.just("step"), st.just("")),
    st.tuples(st.just("steps"), st.just("")),
    st.tuples(st.just("crash"), st.just("")),
)


class Life:
    """A world, and the invariants that hold after every step."""

    def __init__(self) -> None:
        self.world = World()
        self.users: dict[str, int] = {}
        """Nodes that have the memory open, with the domain that they write."""
        self.formatter: str | None = None

    def happen(self, event: tuple[str, str]) -> None:
        what, node = event
        world = self.world
        match what:
            case "pod":
                world.pods[node] = node not in world.unreachable
            case "no-pod":
                world.pods.pop(node, None)
            case "plugin":
                self._plugin(node)
            case "link-down":
                world.unreachable.add(node)
            case "link-up":
                world.unreachable.discard(node)
            case "dies":
                self._closed(node)  # its memory is gone with it
                world.dead[node] = 1000.0
            case "power" if world.facts is not None and world.fabric is not None:
                world.facts = blade(power_epoch=(world.facts.power_epoch or 0) + 1)
                self.users.clear()
                self.formatter = None
            case "time":
                world.later(5.0)
            case "steps":
                for _ in range(15):
                    if isinstance(self._step(crash=False), steps.Done | steps.Wait | None):
                        break
            case "step":
                self._step(crash=False)
            case "crash":
                self._step(crash=True)

    def _plugin(self, node: str) -> None:
        """What a live plugin does: let go when no pod is there, else ask, and open what the answer says is attached."""
        world = self.world
        if world.gone:
            return
        world.dead.pop(node, None)
        if node not in world.pods:
            if world.reported(node) is not None:
                self._closed(node)
                world.says(node, HostState.RELEASED)
            return
        attached = world.phase(node) is AttachmentPhase.ATTACHED
        if not attached:
            world.says(node, HostState.ATTACHING)
            return
        host = next((h for h in world.spec.hosts if h.node == node), None)
        assert host is not None, "attached without a domain"
        self.users[node] = host.domain
        formatted = world.view().formatted
        if host.init and not formatted and self.formatter != node:
            self.formatter = node  # it takes a while; what happens next happens meanwhile
            world.says(node, HostState.ATTACHING)
        elif formatted or self.formatter == node:
            self.formatter = None
            world.says(node, HostState.READY)

    def _closed(self, node: str) -> None:
        self.users.pop(node, None)
        if self.formatter == node:
            self.formatter = None

    def _step(self, *, crash: bool) -> steps.Step | None:
        if self.world.gone:
            return None
        before = dict(self.users)
        step = self.world.step(halfway=crash)
        self._check(step, before)
        return step

    def _check(self, step: steps.Step, users: dict[str, int]) -> None:
        world = self.world
        domains = [h.domain for h in world.spec.hosts]
        assert len(set(domains)) == len(domains), "one domain, two hosts"
        assert all(d < (world.spec.domains or 1) for d in domains)
        holders = [h.node for h in world.spec.hosts if h.init]
        assert len(holders) <= 1
        assert self.formatter is None or holders == [self.formatter], "the init role left a host that is formatting"
        for node, domain in users.items():
            if node in world.dead:
                continue
            owner = next((h for h in world.spec.hosts if h.domain == domain), None)
            assert owner is None or owner.node == node, f"domain {domain} of a live user went to {owner}"
        if isinstance(step, steps.Detach) and not step.fenced:
            assert step.node not in users or step.node in world.dead, "detached under a live user"
        if isinstance(step, steps.Release):
            assert not users, "released under a live user"

    def finish(self) -> None:
        """Everybody lets go; then nothing may be left."""
        world = self.world
        world.pods.clear()
        world.unreachable.clear()
        world.need = Need.NO
        for _ in range(200):
            if world.gone:
                break
            world.later(1.0)
            for node in NODES:
                self._plugin(node)
            self._step(crash=False)
        assert world.gone, f"left: {world.status}"
        assert world.fabric is None


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=80))
def test_no_life_breaks_an_invariant_and_every_one_ends_empty(events: list[tuple[str, str]]) -> None:
    life = Life()
    for event in events:
        life.happen(event)
    life.finish()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=5, max_size=40))
def test_whatever_crashes_there_is_one_compose(crashes: list[bool]) -> None:
    world = World(pods={"n1": True, "n2": True})
    for crash in crashes:
        world.step(halfway=crash)
    world.settle()
    assert world.composes == 1
    assert world.composed
    assert {a.node: a.phase for a in world.status.attachments} == dict.fromkeys(("n1", "n2"), AttachmentPhase.ATTACHED)
