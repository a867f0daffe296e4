"""A node that doesn't lead follows what is committed: in steps, since one change may be of thousands of partitions."""

from collections.abc import Iterable

import pytest

from tests.controller.nodes import Node, World
from tests.metadata.images import partition
from tidelog.metadata.versions import record_version
from tidelog.raft.replay import ReplayBatch
from tidelog.wire.records.metadata import Record, encode_record
from tidelog.wire.records.topics import PartitionChangeRecord, TopicRecord

TOPIC_ID = b"a wide one's id."
PARTITIONS = 2000


@pytest.fixture
def world() -> World:
    return World()


def batch(last_offset: int, records: Iterable[Record]) -> ReplayBatch:
    return ReplayBatch(last_offset, 7, 0, [encode_record(record, record_version(record, 30)) for record in records])


def wide() -> list[Record]:
    return [TopicRecord(name="wide", topic_id=TOPIC_ID), *(partition(index, TOPIC_ID) for index in range(PARTITIONS))]


def follower(world: World) -> Node:
    node = world.start()
    node.raft.resign()
    return node


def leaders(node: Node) -> set[int]:
    return {one.leader_epoch for one in node.image.topics["wide"].partitions}


def test_changes_of_thousands_of_partitions_are_followed_in_their_order(world: World) -> None:
    node = follower(world)
    told: list[int] = []
    node.follower.subscribe(lambda old, new, topics, configs: told.append(sum(map(len, topics.values()))))
    node.controller.replay([batch(5000, wide())])
    for number in range(1, 4):
        changes = [
            PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, leader=1) for index in range(PARTITIONS)
        ]
        node.controller.replay([batch(5000 + number * PARTITIONS, changes)])
    world.run(1)
    assert leaders(node) == {3}
    assert told == [PARTITIONS] * 4
    assert node.image.offset == 5000 + 3 * PARTITIONS


def test_who_comes_to_lead_has_all_of_it_replayed(world: World) -> None:
    node = follower(world)
    node.controller.replay([batch(5000, wide())])
    node.controller.lead(8)
    assert leaders(node) == {0}
    assert node.controller.machine.newest.offset >= 5000
