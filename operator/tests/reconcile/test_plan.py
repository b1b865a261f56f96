"""What a region's next step is, told by symptoms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hymcache.crds.model import ReclaimPolicy
from hymcache.crds.region import AttachmentPhase, HostState, RegionPhase
from hymcache.operator.reconcile.region import steps
from hymcache.operator.reconcile.region.plan import plan
from hymcache.operator.reconcile.region.status import BLOCKED, EVICTED, REFUSED, RETAINED, condition
from hymcache.operator.reconcile.region.view import Need
from region_world import GIB, NOW, SETTINGS, World, blade, ready_world


def conditions(world: World) -> dict[str, str]:
    return {c.type: c.message for c in world.status.conditions if c.status == "True"}


# --- to Ready --------------------------------------------------------------------------------------------------------
def test_two_pods_on_two_nodes_get_a_domain_each_and_one_formats() -> None:
    world = ready_world("n1", "n2")
    assert {h.node: (h.domain, h.init) for h in world.spec.hosts} == {"n1": (0, True), "n2": (1, False)}
    assert world.status.phase is RegionPhase.READY
    assert world.status.hosts_attached == "2/2"
    assert world.composed
    assert world.composes == 1


def test_the_condition_comes_after_compose_and_attach() -> None:
    world = World(pods={"n1": True})
    seen = []
    while not isinstance(step := world.step(), steps.Done):
        seen.append(type(step).__name__)
    assert seen.index("Compose") < seen.index("Attach") < seen.index("MarkComposed")


def test_without_a_nominated_node_the_condition_does_not_wait_for_hosts() -> None:
    world = World()
    world.settle()
    assert world.composed
    world.pods["n1"] = True
    world.settle()
    assert world.phase("n1") is AttachmentPhase.ATTACHED


def test_a_node_that_lost_its_cable_meanwhile_fails_the_allocation() -> None:
    world = World(pods={"n1": False})
    world.settle()
    assert not world.composed
    assert world.failure is not None
    assert world.failure.cause is steps.Cause.UNREACHABLE_HOSTS


def test_one_host_that_cannot_be_attached_does_not_stop_the_other() -> None:
    world = World(pods={"n1": True, "n2": True}, unreachable={"n1"})
    for _ in range(20):
        world.step()
    assert world.composed
    assert world.phase("n2") is AttachmentPhase.ATTACHED
    assert world.phase("n1") is AttachmentPhase.FAILED
    assert world.status.phase is RegionPhase.DEGRADED


def test_the_init_role_leaves_a_host_that_could_not_be_attached() -> None:
    world = World(pods={"n1": True, "n2": True}, unreachable={"n1"})
    for _ in range(20):
        world.step()
    assert {h.node: h.init for h in world.spec.hosts} == {"n1": False, "n2": True}


def test_when_no_host_can_be_attached_the_allocation_is_failed_after_some_tries() -> None:
    world = World(pods={"n1": True}, unreachable={"n1"})
    for _ in range(10):
        world.step()
    assert world.failure is None
    world.given_up = {"n1"}
    for _ in range(5):
        world.step()
    assert world.failure is not None
    assert world.failure.cause is steps.Cause.UNREACHABLE_HOSTS


def test_a_host_more_than_there_are_domains_is_refused_with_a_condition() -> None:
    world = World(pods={"n1": True, "n2": True, "n3": True})
    world.settle()
    assert [h.node for h in world.spec.hosts] == ["n1", "n2"]
    assert "n3: expected a free domain of 2" in conditions(world)[REFUSED]


def test_a_released_hosts_domain_goes_to_the_next() -> None:
    world = ready_world("n1", "n2")
    del world.pods["n2"]
    world.says("n2", HostState.RELEASED)
    world.settle()
    world.pods["n3"] = True
    world.settle()
    assert {h.node: h.domain for h in world.spec.hosts} == {"n1": 0, "n3": 1}


def test_a_host_that_comes_back_gets_its_own_domain() -> None:
    world = ready_world("n1", "n2")
    del world.pods["n1"]
    world.says("n1", HostState.RELEASED)
    world.settle()
    world.pods["n1"] = True
    world.settle()
    assert {h.node: h.domain for h in world.spec.hosts} == {"n1": 0, "n2": 1}
    assert world.phase("n1") is AttachmentPhase.ATTACHED


def test_the_host_scrubs_where_the_appliance_does_not_and_ready_waits_for_it() -> None:
    from hymcache.crds.fabric import Scrubber

    world = World(pods={"n1": True}, facts=blade(scrub=Scrubber.HOST))
    world.settle()
    world.status = world.status.model_copy(update={"scrub": None})
    world.settle()
    assert world.status.phase is RegionPhase.COMPOSING
    world.says("n1", HostState.READY)
    scrubbed = [h.model_copy(update={"scrubbed": True}) for h in world.status.hosts]
    world.status = world.status.model_copy(update={"hosts": scrubbed})
    world.settle()
    assert world.status.phase is RegionPhase.READY
    assert world.status.scrub is not None
    assert world.status.scrub.by == "n1"


# --- no room ---------------------------------------------------------------------------------------------------------
def test_without_room_the_allocation_is_failed_for_capacity() -> None:
    world = World(taken_bytes=62 * GIB)
    world.settle()
    assert world.failure is not None
    assert world.failure.cause is steps.Cause.NO_CAPACITY
    assert world.composes == 0


def test_bytes_that_are_coming_back_are_waited_for_within_the_budget() -> None:
    world = World(taken_bytes=62 * GIB, coming_bytes=4 * GIB)
    assert isinstance(world.settle(), steps.Wait)
    assert world.failure is None
    world.later(SETTINGS.compose_budget_seconds + 1)
    world.settle()
    assert world.failure is not None


def test_retained_data_makes_room_the_oldest_first() -> None:
    world = World(taken_bytes=62 * GIB, retained=("r-old", "r-older"))
    for _ in range(4):
        step = world.step()
        if isinstance(step, steps.Evict):
            break
    assert step == steps.Evict("r-old")


def test_a_claim_for_more_hosts_than_the_blade_serves_is_failed_late() -> None:
    world = World(facts=blade(max_hosts=2))
    world.spec = world.spec.model_copy(update={"domains": 9})
    step = world.settle()
    assert isinstance(step, steps.Wait)
    assert "expected at most 2 domains" in step.why
    assert world.failure is None
    world.later(SETTINGS.request_fault_seconds + 1)
    world.settle()
    assert world.failure is not None
    assert world.failure.cause is steps.Cause.REQUEST


def test_a_failed_allocation_is_left_alone_until_it_is_gone() -> None:
    world = World(failed=True)
    assert isinstance(world.settle(), steps.Wait)
    assert world.composes == 0
    world.need = Need.NO
    world.settle()
    assert world.gone


# --- letting go ------------------------------------------------------------------------------------------------------
def test_a_host_is_detached_only_after_its_plugin_let_go() -> None:
    world = ready_world("n1", "n2")
    del world.pods["n2"]
    world.settle()
    assert world.phase("n2") is AttachmentPhase.DETACHING
    assert world.fabric is not None
    assert world.key("n2") in world.fabric.hosts
    world.says("n2", HostState.RELEASED)
    world.settle()
    assert world.phase("n2") is AttachmentPhase.DETACHED
    assert world.key("n2") not in world.fabric.hosts
    assert world.key("n1") in world.fabric.hosts


def test_a_host_that_never_asked_is_detached_at_once() -> None:
    world = World(pods={"n1": True})
    world.settle()
    world.pods.clear()
    world.settle()
    assert world.phase("n1") is AttachmentPhase.DETACHED


def test_a_host_that_asks_while_it_is_being_detached_is_waited_for() -> None:
    world = World(pods={"n1": True})
    world.settle()
    world.pods.clear()
    while world.phase("n1") is not AttachmentPhase.DETACHING:
        world.step()
    world.says("n1", HostState.ATTACHING)  # its write came before it could see Detaching
    world.settle()
    assert world.fabric is not None
    assert world.key("n1") in world.fabric.hosts


def test_a_dead_host_is_fenced_after_its_time_and_not_before() -> None:
    world = ready_world("n1", "n2")
    del world.pods["n2"]
    world.dead["n2"] = SETTINGS.fence_seconds - 1
    world.settle()
    assert world.phase("n2") is AttachmentPhase.DETACHING
    world.dead["n2"] = SETTINGS.fence_seconds + 1
    world.settle()
    assert world.phase("n2") is AttachmentPhase.FENCED


def test_a_reboot_is_as_good_as_a_release() -> None:
    world = ready_world("n1", "n2")
    del world.pods["n2"]
    world.boots["n2"] = "boot-2"
    world.settle()
    assert world.phase("n2") is AttachmentPhase.DETACHED


def test_a_deleted_node_is_fenced_and_its_entry_removed() -> None:
    world = ready_world("n1", "n2")
    del world.pods["n2"]
    world.removed_nodes.add("n2")
    world.settle()
    assert world.phase("n2") is AttachmentPhase.FENCED
    assert world.reported("n2") is None
    assert world.reported("n1") is HostState.READY


def test_a_live_host_that_holds_on_blocks_the_release_and_says_so() -> None:
    world = ready_world("n1")
    world.pods.clear()
    world.need = Need.NO
    assert isinstance(world.settle(), steps.Wait)
    assert "n1: expected the region to be let go" in conditions(world)[BLOCKED]
    assert world.fabric is not None
    world.says("n1", HostState.RELEASED)
    world.settle()
    assert world.gone
    assert world.fabric is None


# --- the end ---------------------------------------------------------------------------------------------------------
def test_delete_drops_the_bytes_with_the_allocation() -> None:
    world = ready_world("n1")
    world.pods.clear()
    world.need = Need.NO
    world.says("n1", HostState.RELEASED)
    world.settle()
    assert world.gone
    assert world.releases == 1


def test_retain_keeps_the_bytes_while_the_claim_is_there() -> None:
    world = World(pods={"n1": True})
    world.spec = world.spec.model_copy(update={"reclaim_policy": ReclaimPolicy.RETAIN})
    world.settle()
    world.says("n1", HostState.RELEASED)
    world.pods.clear()
    world.need = Need.NO
    world.settle()
    assert not world.gone
    assert RETAINED in conditions(world)
    assert world.status.released_time == NOW
    assert world.fabric is not None
    assert world.fabric.hosts == frozenset()
    world.need = Need.NEVER
    world.settle()
    assert world.gone
    assert world.fabric is None


def test_an_evicted_region_is_released() -> None:
    world = World()
    world.spec = world.spec.model_copy(update={"reclaim_policy": ReclaimPolicy.RETAIN})
    world.settle()
    world.need = Need.NO
    world.settle()
    evicted = condition([], EVICTED, "True", "BytesNeeded", "", NOW)
    world.status = world.status.model_copy(update={"conditions": [*world.status.conditions, evicted]})
    world.settle()
    assert world.gone


def test_bytes_that_another_region_took_over_are_not_released() -> None:
    world = World()
    world.spec = world.spec.model_copy(update={"reclaim_policy": ReclaimPolicy.RETAIN})
    world.settle()
    world.need = Need.NO
    world.settle()
    first = plan(replace(world.view(), inherited=True), SETTINGS)
    assert isinstance(first, steps.WriteStatus)
    world.status = first.status
    assert isinstance(plan(replace(world.view(), inherited=True), SETTINGS), steps.Finish)


def test_releasing_is_for_ever() -> None:
    world = ready_world("n1")
    world.status = world.status.model_copy(update={"phase": RegionPhase.RELEASING})
    world.pods.clear()
    world.says("n1", HostState.RELEASED)
    world.settle()
    assert world.gone


# --- lost ------------------------------------------------------------------------------------------------------------
def test_lost_bytes_are_made_anew_under_a_new_epoch() -> None:
    world = ready_world("n1")
    world.fabric, world.missing = None, True
    assert isinstance(world.step(), steps.Lose)
    world.settle()
    assert world.spec.epoch == 2
    assert world.composes == 2
    assert world.phase("n1") is AttachmentPhase.ATTACHED
    assert world.status.attachments[0].epoch == 2


def test_a_blade_that_was_without_power_has_lost_even_what_it_lists() -> None:
    world = ready_world("n1")
    world.facts = blade(power_epoch=2)
    assert isinstance(world.step(), steps.Lose)
    world.settle()
    assert world.spec.epoch == 2
    assert world.status.power_epoch == 2


def test_a_crash_while_losing_loses_again_and_never_keeps_the_old_epoch() -> None:
    world = ready_world("n1")
    world.fabric, world.missing = None, True
    world.step(halfway=True)
    world.settle()
    assert (world.spec.epoch or 0) >= 2
    assert world.phase("n1") is AttachmentPhase.ATTACHED
    assert world.status.attachments[0].epoch == world.spec.epoch


def test_retained_bytes_that_are_lost_are_given_up() -> None:
    world = World()
    world.spec = world.spec.model_copy(update={"reclaim_policy": ReclaimPolicy.RETAIN})
    world.settle()
    world.need = Need.NO
    world.settle()
    world.fabric, world.missing = None, True
    world.settle()
    assert world.gone


@pytest.mark.parametrize("composed", [False, True], ids=["waiting", "running"])
def test_a_blade_in_no_inventory_fails_a_waiting_claim_after_its_budget_and_a_running_one_never(composed: bool) -> None:
    world = World(facts=None, composed=composed)
    world.spec = world.spec.model_copy(
        update={"uuid": "x", "epoch": 1, "domains": 2, "coherence": "software", "media": "dram", "fabric_name": "f"}
    )
    assert isinstance(world.settle(), steps.Wait)
    world.later(SETTINGS.compose_budget_seconds + 1)
    world.settle()
    assert (world.failure is None) is composed


def test_a_region_whose_blade_nobody_knows_waits_and_is_written_no_more() -> None:
    world = World(facts=None, finalizers=set())
    assert isinstance(world.settle(most=6), steps.Wait)
    assert isinstance(world.step(), steps.Wait)
    world.need = Need.NEVER
    world.settle(most=6)
    assert world.gone
