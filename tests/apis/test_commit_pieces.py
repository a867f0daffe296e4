"""Commits that are written in pieces: to others each of them is one, whatever comes between two of its pieces."""

from typing import Any

import pytest

from tests.apis.groups import harbour_wait
from tests.apis.offsets import GROUP, TOPIC, commit, commit_fields, committed, sim_broker
from tests.apis.sim_broker import NOW_MS, Asked, SimBroker
from tests.apis.txn import SECOND, Txn
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.records.metadata import PartitionRecord, RemoveTopicRecord, TopicRecord

PARTITIONS = 300
PIECE = 100
ALL = dict.fromkeys(range(PARTITIONS), 5)
NEW_ID = b"made again under".ljust(16)[:16]


@pytest.fixture
def port() -> SimBroker:
    made = sim_broker({"offsets.topic.num.partitions": "1"}, partitions=PARTITIONS)
    made.services.groups.committed_at_once = PIECE
    return made


def begun(port: SimBroker, version: int = 8, **fields: Any) -> Asked:
    """A commit whose first piece is appended, and waits for the disk."""
    port.hold_syncs()
    asked = port.send(ApiKey.OFFSET_COMMIT, version, commit_fields(GROUP, ALL, **fields))
    port.pass_time(1)
    assert not asked.done
    return asked


def codes(answer: Any) -> list[int]:
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def replace_topic(port: SimBroker) -> None:
    """The broker hears that the topic was deleted and made again."""
    image = port.services.metadata.image
    old = image.topics[TOPIC].id
    parts = [
        PartitionRecord(partition_id=index, topic_id=NEW_ID, replicas=[1], isr=[1], leader=1)
        for index in range(PARTITIONS)
    ]
    for records in [RemoveTopicRecord(topic_id=old)], [TopicRecord(name=TOPIC, topic_id=NEW_ID), *parts]:
        image = port.services.metadata.image
        whole(port.services.metadata.publish(fold(image, records, image.offset + 1, image.epoch, NOW_MS), records))


def test_a_group_is_deleted_with_all_of_a_commit_or_none(port: SimBroker) -> None:
    asked = begun(port)
    deleting = port.send(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]})
    port.let_sync()
    assert codes(harbour_wait(port, asked)) == [0] * PARTITIONS
    assert [one.error_code for one in harbour_wait(port, deleting).results] == [0]
    assert committed(port) == {}
    port = sim_broker({"offsets.topic.num.partitions": "1"}, disk=port.kill())
    assert committed(port) == {}


def test_a_commit_that_comes_while_its_group_is_deleted_is_committed_after(port: SimBroker) -> None:
    commit(port, ALL)
    port.hold_syncs()
    deleting = port.send(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]})
    port.settle()
    small = port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, {7: 70}))
    large = port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, ALL))
    port.let_sync()
    assert [one.error_code for one in harbour_wait(port, deleting).results] == [0]
    assert codes(harbour_wait(port, small)) == [0]
    assert codes(harbour_wait(port, large)) == [0] * PARTITIONS
    assert committed(port) == ALL


def test_offsets_are_deleted_after_the_commit_that_is_under_way(port: SimBroker) -> None:
    asked = begun(port)
    indexes = [{"partition_index": index} for index in range(PARTITIONS)]
    fields = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": indexes}]}
    deleting = port.send(ApiKey.OFFSET_DELETE, 0, fields)
    port.pass_time(1)
    port.let_sync()
    assert codes(harbour_wait(port, asked)) == [0] * PARTITIONS
    assert codes(harbour_wait(port, deleting)) == [0] * PARTITIONS
    assert committed(port) == {}


def test_of_two_commits_the_later_one_counts_as_a_whole(port: SimBroker) -> None:
    asked = begun(port)
    small = port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, {0: 9, PARTITIONS - 1: 9}))
    port.let_sync()
    assert codes(harbour_wait(port, asked)) == [0] * PARTITIONS
    assert codes(harbour_wait(port, small)) == [0, 0]
    assert committed(port) == {**ALL, 0: 9, PARTITIONS - 1: 9}


def test_who_waits_behind_a_commit_whose_leader_is_gone_is_told(port: SimBroker) -> None:
    asked = begun(port)
    deleting = port.send(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]})
    small = port.send(ApiKey.OFFSET_COMMIT, 8, commit_fields(GROUP, {0: 9}))
    port.services.groups.shards.close()
    port.let_sync()
    assert set(codes(harbour_wait(port, asked))) == {ErrorCode.NOT_COORDINATOR}
    assert harbour_wait(port, deleting).results[0].error_code == ErrorCode.NOT_COORDINATOR
    assert codes(harbour_wait(port, small)) == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_nothing_is_committed_to_the_topic_that_was_made_again_under_the_name(
    port: SimBroker, version: int, code: ErrorCode
) -> None:
    named = {"topic_id": port.services.metadata.image.topics[TOPIC].id} if version == 10 else {"name": TOPIC}
    asked = begun(port, version, named=named)
    replace_topic(port)
    port.let_sync()
    assert codes(harbour_wait(port, asked)) == [0] * PIECE + [code] * (PARTITIONS - PIECE)
    port.settle()
    assert committed(port) == {}


def test_nothing_is_pending_for_the_topic_that_was_made_again_under_the_name(port: SimBroker) -> None:
    txn = Txn(port, "copier", versions=SECOND)
    assert txn.init() == 0
    port.hold_syncs()
    fields = {
        **commit_fields(GROUP, ALL),
        "transactional_id": txn.name,
        "producer_id": txn.id,
        "producer_epoch": txn.epoch,
    }
    asked = port.send(ApiKey.TXN_OFFSET_COMMIT, 5, fields)
    for _ in range(3):  # the group joins the transaction first
        port.pass_time(0.5)
        if port.services.groups.shards.of(GROUP).machine.newest.pending:
            break
        port.let_first_sync()
    assert port.services.groups.shards.of(GROUP).machine.newest.pending
    replace_topic(port)
    port.let_sync()
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (PARTITIONS - PIECE)
    assert codes(harbour_wait(port, asked)) == [0] * PIECE + unknown
    assert txn.commit() == 0
    port.settle()
    assert committed(port) == {}
