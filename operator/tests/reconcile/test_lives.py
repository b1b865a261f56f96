"""Random lives of a region with crashes in them: what must never happen does not, and in the end nothing is left."""

from __future__ import annotations

from hymcache.crds.region import AttachmentPhase, HostState
from hymcache.operator.reconcile.region import steps
from hymcache.operator.reconcile.region.plan import plan
from hymcache.operator.reconcile.region.view import Need
from hypothesis import given, settings
from hypothesis import strategies as st
from region_world import SETTINGS, World, blade

NODES = ("n1", "n2", "n3")

OFTEN = ("pod", "no-pod", "plugin", "plugin", "steps", "steps", "steps", "race")
SELDOM = ("link-down", "link-lies", "link-up", "dies", "power", "time", "step", "crash", "deallocated")
EVENTS = st.tuples(st.sampled_from(OFTEN + OFTEN + SELDOM), st.sampled_from(NODES))


class Life:
    """A world, and the invariants that hold after every step."""

    def __init__(self) -> None:
        self.world = World()
        self.users: dict[str, tuple[int, int]] = {}
        """Nodes that have the memory open, with its epoch and the domain that they write."""
        self.formatter: tuple[int, str] | None = None
        """Epoch that is being formatted, and by whom."""

    def happen(self, event: tuple[str, str]) -> None:
        what, node = event
        world = self.world
        match what:
            case "pod":
                if world.need is Need.YES:
                    world.pods[node] = node not in world.unreachable
            case "no-pod":
                world.pods.pop(node, None)
            case "plugin":
                self._plugin(node)
            case "link-down":
                world.unreachable.add(node)
            case "link-lies":
                world.lying.add(node)
            case "link-up":
                world.unreachable.discard(node)
                world.lying.discard(node)
            case "deallocated":
                world.need = Need.NO
                world.pods.clear()
            case "race" if not world.gone:
                before = dict(self.users)
                view = world.view()
                step = plan(view, SETTINGS)
                self._plugin(node, late=True)  # after the operator has read, before it acts
                fabric_only = isinstance(step, steps.Compose | steps.Attach | steps.Detach)
                if fabric_only:  # what it writes to the object then is refused: the object has changed
                    world.act(view, step, halfway=True)
                    self._check(step, {**before, **self.users})
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

    def _plugin(self, node: str, *, late: bool = False) -> None:
        """What a live plugin does: let go when no pod is there, else ask, and open what the answer says is attached.

        `late`: it is in the middle of a Prepare and does not know that the pod has gone.
        """
        world = self.world
        if world.gone:
            return
        world.dead.pop(node, None)
        if node not in world.pods and not late:
            if world.reported(node) is not None:
                self._closed(node)
                world.says(node, HostState.RELEASED)
            return
        if world.reported(node) not in {HostState.ATTACHING, HostState.READY}:
            world.says(node, HostState.ATTACHING)  # first say, then look: the operator does it the other way round
        attachment = world.view().attachment(node)
        if attachment is None or attachment.phase is not AttachmentPhase.ATTACHED:
            return
        host = next((h for h in world.spec.hosts if h.node == node), None)
        if host is None:
            return
        epoch = world.spec.epoch or 1
        self.users[node] = (epoch, host.domain)
        formatted = world.view().formatted
        if host.init and not formatted and self.formatter != (epoch, node):
            self.formatter = (epoch, node)  # it takes a while; what happens next happens meanwhile
        elif formatted or self.formatter == (epoch, node):
            self.formatter = None
            world.says(node, HostState.READY)

    def _closed(self, node: str) -> None:
        self.users.pop(node, None)
        if self.formatter and self.formatter[1] == node:
            self.formatter = None

    def _step(self, *, crash: bool) -> steps.Step | None:
        if self.world.gone:
            return None
        before = dict(self.users)
        step = self.world.step(halfway=crash)
        self._check(step, before)
        return step

    def _check(self, step: steps.Step, before: dict[str, tuple[int, int]]) -> None:
        """Users of an older epoch have memory that is gone: nothing they write reaches the new one."""
        world = self.world
        epoch = world.spec.epoch or 1
        users = {node: domain for node, (since, domain) in before.items() if since == epoch}
        domains = [h.domain for h in world.spec.hosts]
        assert len(set(domains)) == len(domains), "one domain, two hosts"
        assert all(d < (world.spec.domains or 1) for d in domains)
        holders = [h.node for h in world.spec.hosts if h.init]
        assert len(holders) <= 1
        formatting = [self.formatter[1]] if self.formatter and self.formatter[0] == epoch else holders
        assert holders == formatting, "the init role left a host that is formatting"
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
        world.lying.clear()
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


@settings(max_examples=400, deadline=None)
@given(st.lists(EVENTS, min_size=30, max_size=90))
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
