"""Partitions that move between brokers (KIP-455): AlterPartitionReassignments and ListPartitionReassignments.

A reassignment adds the new replicas first. When these are in the ISR, those that are to go are taken out
(`partition_change.py`); where that is so at once, as when replicas only change places, it ends at once. Until
then it can be cancelled, which takes the new ones out again, or replaced by another one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidelog.controller.assignments import check_replicas, default_directory
from tidelog.controller.changes import Changes
from tidelog.controller.leaders import Defaults, unclean_allowed
from tidelog.controller.limits import check_changes, check_in_memory
from tidelog.controller.partition_change import RECOVERING, Election, Target, as_it_is
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.directories import UNASSIGNED_DIRECTORY
from tidelog.metadata.image import ClusterImage, PartitionImage, TopicImage
from tidelog.metadata.versions import MV_3_7_IV2
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

PARTITIONS_A_STEP = 64


def alter_reassignments(
    image: ClusterImage, request: AlterPartitionReassignmentsRequest, defaults: Defaults
) -> Steps[Decision[Any, AlterPartitionReassignmentsResponse]]:
    """Each partition is reassigned, or told why not. Null replicas cancel. All of it is written, or nothing."""
    changes = Changes(image, defaults)
    topics: list[ReassignableTopicResponse] = []
    looks = 0
    for topic in request.topics:
        results: list[ReassignablePartitionResponse] = []
        for partition in topic.partitions:
            looks += 1
            if not looks % PARTITIONS_A_STEP:
                yield
            result = ReassignablePartitionResponse(partition_index=partition.partition_index, error_message=None)
            try:
                _alter(changes, image, topic.name, partition, defaults, request.allow_replication_factor_change)
            except KafkaError as error:
                result = replace(result, error_code=error.code, error_message=error.message)
            results.append(result)
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    check_changes(len(changes.records), "partitions")
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None, responses=topics
    )
    return Decision(changes.records, response)


def _alter(
    changes: Changes,
    image: ClusterImage,
    name: str,
    asked: ReassignablePartition,
    defaults: Defaults,
    may_change_factor: bool,
) -> None:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
    partition = changes.partition(topic, asked.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{asked.partition_index}.")
    if asked.replicas is None:
        target = _cancelled(partition, unclean=unclean_allowed(image, name, defaults))
        changes.change(topic, asked.partition_index, target)
        return
    check_replicas(image, asked.replicas, None)
    if not may_change_factor and len(asked.replicas) != _factor(partition):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The partition has {_factor(partition)} replica(s), the assignment {len(asked.replicas)}; the request "
            "doesn't allow that number to change.",
        )
    target = moved(image, partition, asked.replicas)
    check_in_memory(name, image.topic_config(name), len(target.replicas))  # those that are to go included
    changes.change(topic, asked.partition_index, target, election=Election.ONLINE)


def _factor(partition: PartitionImage) -> int:
    """How many replicas there are once what is under way has ended."""
    return len(set(partition.replicas) - set(partition.removing))


def moved(image: ClusterImage, partition: PartitionImage, wanted: Sequence[int]) -> Target:
    """The first step towards these replicas. What an earlier reassignment was adding stays marked as added, wanted or
    not, so that a cancellation goes back to what was there before both."""
    removing = tuple(sorted(set(partition.replicas) - set(wanted)))
    new = sorted(set(wanted) - set(partition.replicas))
    new_directories: tuple[tuple[int, bytes], ...] = ()
    if image.metadata_version >= MV_3_7_IV2:
        new_directories = tuple((replica, _directory(image, replica)) for replica in new)
    return replace(
        as_it_is(partition),
        replicas=(*wanted, *removing),
        removing=removing,
        adding=tuple(sorted({*partition.adding, *new})),
        directories=new_directories,
    )


def _directory(image: ClusterImage, replica: int) -> bytes:
    broker = image.brokers.get(replica)
    return UNASSIGNED_DIRECTORY if broker is None else default_directory(broker)


def _cancelled(partition: PartitionImage, *, unclean: bool) -> Target:
    """As it was before the reassignment."""
    if not partition.adding and not partition.removing:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "The partition isn't being reassigned.")
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding)
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Every replica is being added: there is none to go back to."
        )
    recovery_state = partition.leader_recovery_state
    if not isr and partition.isr:
        if not unclean:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "None of the replicas from before is in sync: to go back would need an unclean election.",
            )
        isr, recovery_state = replicas[:1], RECOVERING
    return replace(
        as_it_is(partition), replicas=replicas, isr=isr, adding=(), removing=(), recovery_state=recovery_state
    )


def list_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    """Of the topics and partitions asked for, or of all. Unknown ones are passed over. A read: committed state."""
    topics: list[OngoingTopicReassignment] = []
    if request.topics is None:
        for topic in image.topics.values():
            yield from _add_moving(topics, topic, range(len(topic.partitions)))
    else:
        for asked in request.topics:
            topic = image.topics.get(asked.name)
            if topic is None:
                yield
            else:
                yield from _add_moving(topics, topic, asked.partition_indexes)
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _add_moving(topics: list[OngoingTopicReassignment], topic: TopicImage, indexes: Sequence[int]) -> Steps[None]:
    """Those of the topic whose replicas are being moved, if there are any."""
    moving: list[OngoingPartitionReassignment] = []
    for start in range(0, len(indexes), PARTITIONS_A_STEP):
        for index in indexes[start : start + PARTITIONS_A_STEP]:
            if not 0 <= index < len(topic.partitions):
                continue
            partition = topic.partitions[index]
            if partition.adding or partition.removing:
                moving.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                )
        yield
    if moving:
        topics.append(OngoingTopicReassignment(name=topic.name, partitions=moving))
