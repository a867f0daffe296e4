"""Replicas whose brokers crash, whose logs fail, and that are moved: who leads, and what of them is where, then."""

from typing import Any

import pytest

from tests.replica.copied import TOPIC, Copied
from tidelog.metadata.directories import LOST_DIRECTORY
from tidelog.sim.cluster.node import Machine
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

RECOVERED = 0
TWO_IN_SYNC = {"min.insync.replicas": "2"}


def image(copied: Copied, seen_by: Machine | None = None) -> Any:
    return copied.image(seen_by or copied.up[0]).topics[TOPIC].partitions[0]


def after_all_died(copied: Copied) -> tuple[Machine, Machine]:
    """Who led last, and another one that is eligible. Who was fenced first isn't: two were left to go on."""
    controller = copied.world.controllers[0]
    copied.settle(3.0)
    partition = image(copied, controller)
    (last,) = partition.last_known_elr
    (other,) = (id for id in partition.elr if id != last)
    assert partition.leader == -1
    return copied.machines[last], copied.machines[other]


def all_in_sync(copied: Copied) -> None:
    copied.wait(lambda: len(image(copied).isr) == 3, "all to be in sync")


@pytest.mark.parametrize("power", [False, True], ids=["are killed", "lose power"])
def test_all_brokers_go_at_once_and_who_comes_first_leads(*, power: bool) -> None:
    """Each of them has all that was acknowledged, and knows it."""
    copied = Copied(TWO_IN_SYNC)
    copied.append(b"a", b"b")
    copied.copied()
    all_in_sync(copied)
    copied.kill(*copied.machines.values(), power=power)
    _, first = after_all_died(copied)
    copied.start(first)
    assert copied.leader is first
    assert image(copied).leader_recovery_state == RECOVERED
    copied.start(*(machine for machine in copied.machines.values() if machine is not first))
    all_in_sync(copied)
    copied.append(b"c")
    copied.copied()
    assert copied.log(first).log_end == 3


@pytest.mark.parametrize("wanted", ["1", "3"], ids=["fewer in sync are asked for", "more are asked for"])
def test_who_is_eligible_while_nobody_leads_stays_so_when_min_isr_is_changed(wanted: str) -> None:
    """What an operator does whose producers are refused. Without a leader nothing is committed that somebody misses."""
    copied = Copied(TWO_IN_SYNC)
    copied.append(b"a", b"b")
    copied.copied()
    all_in_sync(copied)
    copied.kill(*copied.machines.values())
    _, first = after_all_died(copied)
    setting = AlterableConfig(name="min.insync.replicas", config_operation=0, value=wanted)
    topic = AlterConfigsResource(resource_type=2, resource_name=TOPIC, configs=[setting])
    controller = copied.world.controllers[0]
    asked = copied.services(controller).channel.ask(IncrementalAlterConfigsRequest(resources=[topic]), 5000)
    copied.wait(lambda: asked.done, "the controller's answer")
    assert asked.result().responses[0].error_code == 0
    copied.start(first)
    assert copied.leader is first
    after = image(copied)
    assert after.leader_recovery_state == RECOVERED
    assert bool(after.elr) is (wanted == "3")  # one that suffices goes on without the other
    assert copied.log(first).log_end == 2


def test_where_the_page_cache_counted_the_last_leader_is_waited_for() -> None:
    copied = Copied({**TWO_IN_SYNC, "tidelog.durability": "os"})
    copied.append(b"a")
    copied.copied()
    all_in_sync(copied)
    copied.kill(*copied.machines.values())
    last, _ = after_all_died(copied)
    others = [machine for machine in copied.machines.values() if machine is not last]
    copied.start(*others)
    copied.settle(3.0)
    assert image(copied).leader == -1
    copied.start(last)
    assert copied.leader is last


def test_a_leader_whose_disk_fails_hands_over_and_comes_back_after_a_restart() -> None:
    copied = Copied({"min.insync.replicas": "1"})
    copied.append(b"before")
    copied.copied()
    all_in_sync(copied)
    failed = copied.leader
    failed.disk.failing_syncs = 1
    copied.partition(failed).log.go_offline("its disk is worn")
    copied.wait(lambda: image(copied).leader not in (-1, failed.id), "another one to lead")
    place = image(copied).replicas.index(failed.id)
    assert image(copied).directories[place] == LOST_DIRECTORY
    failed.disk.failing_syncs = 0
    others = [machine for machine in copied.machines.values() if machine is not failed]
    copied.append(b"after")
    copied.copied(others)
    copied.kill(failed)
    copied.start(failed)
    all_in_sync(copied)
    assert image(copied).directories[place] != LOST_DIRECTORY
    copied.copied()


def test_a_follower_whose_log_fails_leaves_the_isr() -> None:
    copied = Copied({"min.insync.replicas": "1"})
    copied.append(b"before")
    copied.copied()
    all_in_sync(copied)
    failed = copied.followers[0]
    leader = copied.leader
    copied.partition(failed).log.go_offline("its disk is worn")
    copied.wait(lambda: failed.id not in image(copied).isr, "it to be out of the ISR")
    assert copied.leader is leader
    copied.append(b"after")
    copied.copied([machine for machine in copied.machines.values() if machine is not failed])


def test_a_replica_that_is_moved_is_copied_and_its_files_go_where_it_was() -> None:
    copied = Copied({"min.insync.replicas": "1"})
    copied.append(b"a", b"b")
    copied.copied()
    all_in_sync(copied)
    leader, stays, goes = copied.leader, *copied.followers
    reassign(copied, [leader.id, stays.id])
    copied.wait(lambda: image(copied).replicas == (leader.id, stays.id), "the replica to be gone")
    copied.wait(lambda: not goes.disk.exists(f"/data/{TOPIC}-0"), "its files to go")
    copied.append(b"c")
    copied.copied([leader, stays])

    reassign(copied, [goes.id])
    copied.wait(lambda: image(copied).replicas == (goes.id,), "it to be moved")
    for machine in (leader, stays):
        copied.wait(lambda machine=machine: not machine.disk.exists(f"/data/{TOPIC}-0"), "the others' files to go")
    assert copied.leader is goes
    assert copied.log(goes).log_end == 3
    copied.kill(goes, power=True)
    copied.start(goes)
    assert copied.log(goes).log_end == 3


def reassign(copied: Copied, replicas: list[int]) -> None:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name=TOPIC, partitions=[partition])
    answer = copied.ask(AlterPartitionReassignmentsRequest(topics=[topic]))
    assert answer.responses[0].partitions[0].error_code == 0, answer
