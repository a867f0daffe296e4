"""Whole nodes on virtual time: clocks of their own, processes that stop and wake, disks that come back empty."""

import pytest

from tests.sim.clusters import OFTEN, all_serve, cluster, settle
from tidelog.raft.quorum import Role
from tidelog.sim.cluster.admins import Admin
from tidelog.sim.cluster.node import Machine
from tidelog.sim.cluster.shape import BOTH, BROKER, CONTROLLER
from tidelog.sim.cluster.world import ClusterWorld
from tidelog.sim.world.clock import MachineClock
from tidelog.sim.world.loop import EPOCH_MS, SimLoop, Timeline
from tidelog.sim.world.random import SimRandom


def changed(world: ClusterWorld, seconds: float = 1.0) -> None:
    """Somebody makes topics for a while."""
    admin = Admin(world, f"admin{world.timeline.events}", SimRandom("admin"))
    settle(world, seconds)
    admin.stopped = True
    settle(world, 0.5)
    assert admin.changes > 0


def led(world: ClusterWorld) -> Machine:
    world.wait(lambda: world.leader() is not None, 20.0, lambda: "a leader")
    leader = world.leader()
    assert leader is not None
    return leader


# ---- clocks ----


def test_machine_has_a_clock_of_its_own_that_runs_faster_or_slower() -> None:
    timeline = Timeline()
    fast, slow = MachineClock(timeline, 5.0, 1.25), MachineClock(timeline, -5.0, 0.5)
    assert (fast.now_ms(), slow.now_ms()) == (EPOCH_MS + 5000, EPOCH_MS - 5000)
    timeline.run_until(lambda: False, 8.0)
    assert (fast.now_ms(), slow.now_ms()) == (EPOCH_MS + 15_000, EPOCH_MS - 1000)
    assert (fast.monotonic(), slow.monotonic()) == (10.0, 4.0)


def test_timers_of_a_machine_go_by_its_clock() -> None:
    timeline, fired = Timeline(), list[tuple[str, float]]()

    def fire(name: str) -> None:
        fired.append((name, timeline.now))

    for name, rate in (("slow", 0.5), ("fast", 2.0)):
        SimLoop(timeline, SimRandom(1), rate).call_later(1.0, fire, name)
    timeline.run_until(lambda: False, 5.0)
    assert fired == [("fast", 0.5), ("slow", 2.0)]


# ---- processes that stop and wake ----


def test_stopped_process_does_nothing_until_it_wakes_and_then_all_in_order() -> None:
    timeline, done = Timeline(), list[tuple[str, float]]()
    loop = SimLoop(timeline, SimRandom(1))

    def happen(name: str) -> None:
        done.append((name, timeline.now))

    timers = [
        loop.call_later(at, happen, name)
        for name, at in (("before", 1.0), ("first", 3.0), ("cancelled", 3.5), ("second", 4.0), ("after", 9.0))
    ]
    timeline.plan(2.0, loop.freeze)
    timeline.plan(6.0, loop.thaw)
    timeline.plan(6.0, timers[2].cancel)
    timeline.run_until(lambda: False, 10.0)
    assert done == [("before", 1.0), ("first", 6.0), ("second", 6.0), ("after", 9.0)]


def test_leader_that_is_frozen_is_replaced_and_follows_when_it_wakes() -> None:
    world = cluster()
    frozen = led(world)
    epoch = world.replica(frozen).epoch
    frozen.freeze()
    changed(world, 6.0)
    assert led(world) is not frozen
    assert world.replica(frozen).epoch == epoch, "it knows of nothing"
    frozen.thaw()
    end = world.sights.end
    world.wait(lambda: world.replica(frozen).high_watermark >= end, 10.0, lambda: "it to catch up")
    assert world.replica(frozen).quorum.role is Role.FOLLOWER


# ---- power and disks ----


def test_all_nodes_lose_power_and_know_all_that_was_committed() -> None:
    world = cluster((BOTH, BOTH, CONTROLLER, BROKER), OFTEN)
    changed(world, 2.0)
    end = world.sights.end
    for machine in world.machines.values():
        machine.lose_power()
    all_serve(world)
    assert all(world.replica(machine).high_watermark >= end for machine in world.machines.values())


def test_controller_with_a_wiped_disk_is_an_observer_and_then_a_voter_with_its_new_directory() -> None:
    world = cluster()
    changed(world)
    wiped = next(machine for machine in world.machines.values() if machine is not led(world))
    before = wiped.directory_id
    wiped.kill()
    wiped.wipe(wiped.folders)
    world.revive(wiped)
    world.wait(lambda: world.is_looked_at(wiped), 5.0, lambda: "it to know its cluster")
    after = world.replica(wiped).local.key
    assert after.directory_id == wiped.directory_id != before
    assert after not in world.voters()
    world.wait(lambda: after in world.voters(), 20.0, lambda: "it to be a voter again")
    assert (wiped.id, before) not in world.voters()


def test_broker_whose_metadata_is_gone_keeps_the_files_of_its_partitions() -> None:
    world = cluster((BOTH, BOTH, BOTH, BROKER), own_metadata_disk=True)
    changed(world)
    broker = world.machines[4]
    broker.kill()
    broker.forget_metadata()
    all_serve(world)
    world.wait(lambda: world.replica(broker).high_watermark >= world.sights.end, 5.0, lambda: "it to catch up")
    topics = [topic for topic in world.ledger.topics.values() if topic.stays]
    assert topics
    assert not any(broker.has_stray(topic.name, index, topic.id or b"") for topic in topics for index in range(2))


def test_broker_waits_for_its_id_while_the_machine_that_had_it_lives() -> None:
    world = cluster((BOTH, BOTH, BOTH, BROKER))
    old = world.machines[4]
    world.replace(old)
    settle(world, 5.0)
    assert old.ready
    assert not world.machines[4].ready
    old.kill()
    all_serve(world)


# ---- what the simulator found ----


def test_controllers_that_know_all_there_is_at_their_start_serve() -> None:
    """One whose checkpoint is of the present epoch is ready at once: before, it took no connections then."""
    world = cluster((CONTROLLER, CONTROLLER, CONTROLLER, BROKER), OFTEN)
    changed(world, 3.0)
    for machine in world.machines.values():
        machine.kill()
    settle(world, 1.0)
    all_serve(world)
    changed(world)


@pytest.mark.parametrize("controllers", [3, 5])
def test_committed_metadata_is_the_same_on_all_nodes(controllers: int) -> None:
    world = cluster((BOTH, *[CONTROLLER] * (controllers - 1), BROKER))
    changed(world)
    settle(world, 1.0)
    world.look()
    assert {world.replica(machine).high_watermark for machine in world.machines.values()} == {world.sights.end}
