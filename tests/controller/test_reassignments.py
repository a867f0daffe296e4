"""AlterPartitionReassignments and ListPartitionReassignments: the ways of a partition from brokers to brokers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.metadata.images import TOPIC_ID, broker, directory, image_of, partition
from tidelog.controller.leaders import Defaults
from tidelog.controller.reassignments import alter_reassignments, list_reassignments
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.wire.records.metadata import ConfigRecord, Record
from tidelog.wire.records.topics import PartitionChangeRecord, TopicRecord

ANY = Defaults()
CHANGED = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID)


def cluster(*more: Record, replicas: tuple[int, ...] = (1, 2), isr: tuple[int, ...] | None = None) -> ClusterImage:
    return image_of(
        *(broker(id) for id in (1, 2, 3, 4)),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        partition(0, replicas=replicas, isr=isr, leader=replicas[0] if isr is None else isr[0]),
        *more,
    )


def ask(
    image: ClusterImage,
    *wanted: Sequence[int] | None,
    factor_may_change: bool = True,
    defaults: Defaults = ANY,
    name: str = "t",
    index: int = 0,
) -> tuple[Sequence[Any], list[ReassignablePartitionResponse]]:
    partitions = [
        ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
        for replicas in wanted
    ]
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=factor_may_change,
        topics=[ReassignableTopic(name=name, partitions=partitions)],
    )
    records, response = whole(alter_reassignments(image, request, defaults))
    assert (response.error_code, response.error_message) == (0, None)
    assert response.allow_replication_factor_change == factor_may_change
    return records, response.responses[0].partitions


def after(image: ClusterImage, records: Sequence[Any]) -> ClusterImage:
    changed = fold(image, records, image.offset + len(records), 1, 0)
    changed.check_invariants()
    return changed


def moved(image: ClusterImage, wanted: Sequence[int] | None) -> ClusterImage:
    records, (result,) = ask(image, wanted)
    assert result.error_code == 0, result
    return after(image, records)


def listed(image: ClusterImage) -> list[tuple[list[int], list[int], list[int]]]:
    response = whole(list_reassignments(image, ListPartitionReassignmentsRequest()))
    return [(p.replicas, p.adding_replicas, p.removing_replicas) for t in response.topics for p in t.partitions]


def test_new_replica_is_added_first_and_the_old_one_waits() -> None:
    records, results = ask(cluster(), [1, 3])
    assert records == [
        replace(
            CHANGED,
            replicas=[1, 3, 2],
            removing_replicas=[2],
            adding_replicas=[3],
            directories=[directory(1), directory(3), directory(2)],
        )
    ]
    assert results == [ReassignablePartitionResponse(error_message=None)]
    image = after(cluster(), records)
    response = whole(list_reassignments(image, ListPartitionReassignmentsRequest()))
    moving = OngoingPartitionReassignment(replicas=[1, 3, 2], adding_replicas=[3], removing_replicas=[2])
    assert response.topics == [OngoingTopicReassignment(name="t", partitions=[moving])]
    others = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 7]) for name in ("t", "u")]
    assert whole(list_reassignments(image, ListPartitionReassignmentsRequest(topics=others))) == response


def test_cancelled_reassignment_leaves_no_trace() -> None:
    image = moved(cluster(), [3, 4])
    assert listed(image) == [([3, 4, 1, 2], [3, 4], [1, 2])]
    records, _ = ask(image, None)
    assert records == [
        replace(
            CHANGED,
            leader=1,  # a new leader epoch: 3 and 4 have to hear of it
            replicas=[1, 2],
            removing_replicas=[],
            adding_replicas=[],
            directories=[directory(1), directory(2)],
        )
    ]
    assert listed(after(image, records)) == []


def test_order_of_replicas_changes_at_once_and_their_leader_does_not() -> None:
    records, _ = ask(cluster(), [2, 1])
    assert records == [replace(CHANGED, replicas=[2, 1], directories=[directory(2), directory(1)])]
    assert ask(cluster(), [1, 2])[0] == []


def test_fewer_replicas_are_there_at_once_where_those_that_stay_are_in_sync() -> None:
    records, _ = ask(cluster(replicas=(1, 2, 3)), [3, 2])
    assert records == [
        replace(CHANGED, isr=[2, 3], leader=3, replicas=[3, 2], directories=[directory(3), directory(2)])
    ]
    image = moved(cluster(replicas=(1, 2, 3), isr=(1, 2)), [3, 2])
    assert listed(image) == [([3, 2, 1], [], [1])]


def test_reassignment_is_replaced_by_another_and_its_cancellation_goes_back_before_both() -> None:
    image = moved(moved(cluster(), [1, 3]), [1, 4])
    assert listed(image) == [([1, 4, 2, 3], [3, 4], [2, 3])]
    (back,) = moved(image, None).topics["t"].partitions
    assert (back.replicas, back.isr, back.adding, back.removing) == ((1, 2), (1, 2), (), ())


def test_reassignment_back_to_what_was_there_ends() -> None:
    (back,) = moved(moved(cluster(), [1, 3]), [1, 2]).topics["t"].partitions
    assert (back.replicas, back.isr, back.adding, back.removing) == ((1, 2), (1, 2), (), ())


def test_directory_of_a_new_replica_is_the_brokers_only_one_or_its_choice() -> None:
    several = broker(3)
    several.log_dirs = [directory(3), b"second directory"]
    records, _ = ask(cluster(several), [1, 3, 4])
    assert records[0].directories == [directory(1), bytes(15) + b"\x01", directory(4), directory(2)]


def test_replication_factor_stays_where_the_request_says_so() -> None:
    assert ask(cluster(), [3, 4], factor_may_change=False)[1][0].error_code == 0
    records, (result,) = ask(cluster(), [1, 2, 3], factor_may_change=False)
    assert (records, result.error_code) == ([], ErrorCode.INVALID_REPLICATION_FACTOR)
    moving = moved(cluster(), [3, 4])
    assert ask(moving, [1, 4], factor_may_change=False)[1][0].error_code == 0, "two, once it has ended"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, -1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_reassignment_that_cannot_be_is_refused(wanted: list[int] | None, code: ErrorCode) -> None:
    records, (result,) = ask(cluster(), wanted)
    assert (records, result.error_code) == ([], code)


def test_unknown_partitions_are_told() -> None:
    for name, index in (("t", 1), ("u", 0), ("t", -1)):
        records, (result,) = ask(cluster(), [1], name=name, index=index)
        assert (records, result.error_code) == ([], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_partition_that_stands_twice_is_decided_one_after_the_other() -> None:
    records, results = ask(cluster(), [1, 3], None)
    assert [result.error_code for result in results] == [0, 0]
    (found,) = after(cluster(), records).topics["t"].partitions
    assert (found.replicas, found.adding, found.removing) == ((1, 2), (), ())


def test_cancellation_that_would_lose_data_needs_the_topics_leave() -> None:
    only_new = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=[3, 4, 1, 2], removing_replicas=[1, 2], adding_replicas=[3, 4],
        isr=[3], leader=3, directories=[directory(id) for id in (3, 4, 1, 2)],
    )  # fmt: skip
    image = cluster(only_new)
    records, (result,) = ask(image, None)
    assert (records, result.error_code) == ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    records, (result,) = ask(image, None, defaults=Defaults(unclean_leader_election=True))
    assert result.error_code == 0
    (found,) = after(image, records).topics["t"].partitions
    assert (found.replicas, found.isr, found.leader, found.leader_recovery_state) == ((1, 2), (1,), 1, 1)


def test_a_topic_in_memory_stays_where_it_is() -> None:
    """While it moves there would be two replicas, of which a restart leaves nothing."""
    in_memory = ConfigRecord(resource_type=2, resource_name="t", name="tidelog.storage", value="memory")
    image = cluster(in_memory, replicas=(1,))
    for wanted in ([2], [1, 2]):
        records, (result,) = ask(image, wanted)
        assert records == []
        assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "'t' would have 2 replicas, and be kept in memory" in (result.error_message or "")
    assert ask(image, [1]) == ([], [ReassignablePartitionResponse(partition_index=0, error_message=None)])
