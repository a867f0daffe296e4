"""AlterPartition, AssignReplicasToDirs, reassignments and elections, as the active controller answers them."""

import logging

import pytest

from tests.apis.controllers import ControllerNode
from tests.metadata.images import TOPIC_ID, partition, topic
from tidelog.apis import (
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    handler,
    list_partition_reassignments,
)
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages import alter_partition as altering
from tidelog.wire.messages import assign_replicas_to_dirs as assigning
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from tidelog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest


@pytest.fixture
def cluster() -> ControllerNode:
    cluster = ControllerNode()
    cluster.join(2, 3, 4)
    cluster.node.write(*topic(replicas=(2, 3)))
    return cluster


def alter(cluster: ControllerNode, *isr: int, sender: int = 2) -> altering.AlterPartitionResponse:
    now = cluster.image.topics["t"].partitions[0]
    data = altering.PartitionData(
        leader_epoch=now.leader_epoch,
        partition_epoch=now.partition_epoch,
        new_isr_with_epochs=[altering.BrokerState(broker_id=id, broker_epoch=cluster.epochs[id]) for id in isr],
    )
    request = altering.AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=cluster.epochs[sender],
        topics=[altering.TopicData(topic_id=TOPIC_ID, partitions=[data])],
    )
    return cluster.ask(alter_partition.handle, request, sender, version=3)


def reassign(
    cluster: ControllerNode, replicas: list[int] | None, name: str = "t", timeout_ms: int = 5000
) -> AlterPartitionReassignmentsResponse:
    partitions = [ReassignablePartition(partition_index=0, replicas=replicas)]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, topics=[ReassignableTopic(name=name, partitions=partitions)]
    )
    return cluster.ask(alter_partition_reassignments.handle, request, version=1)


def listed(cluster: ControllerNode) -> list[tuple[list[int], list[int], list[int]]]:
    response = cluster.ask(list_partition_reassignments.handle, ListPartitionReassignmentsRequest())
    return [(p.replicas, p.adding_replicas, p.removing_replicas) for t in response.topics for p in t.partitions]


def test_partition_moves_to_another_broker_and_its_leader_with_it(cluster: ControllerNode) -> None:
    assert reassign(cluster, [4, 3]).responses[0].partitions[0].error_code == ErrorCode.NONE
    assert listed(cluster) == [([4, 3, 2], [4], [2])]
    told = alter(cluster, 2, 3).topics[0].partitions[0]
    assert (told.error_code, told.isr, told.leader_id) == (ErrorCode.NONE, [2, 3], 2)
    assert listed(cluster) == [([4, 3, 2], [4], [2])], "the new one isn't in sync yet"
    told = alter(cluster, 2, 3, 4).topics[0].partitions[0]
    assert told.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert listed(cluster) == []
    found = cluster.image.topics["t"].partitions[0]
    assert (found.replicas, found.isr, found.leader) == ((4, 3), (3, 4), 4)


def test_reassignment_is_cancelled(cluster: ControllerNode) -> None:
    reassign(cluster, [4])
    assert listed(cluster) == [([4, 2, 3], [4], [2, 3])]
    assert reassign(cluster, None).responses[0].partitions[0].error_code == ErrorCode.NONE
    assert listed(cluster) == []
    again = reassign(cluster, None).responses[0].partitions[0]
    assert again.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_replica_that_restarted_is_not_let_in_by_its_old_epoch(cluster: ControllerNode) -> None:
    alter(cluster, 2)
    old = cluster.epochs[3]
    cluster.controller.connection_broken(3)
    cluster.world.run(0.8)
    cluster.register(3, b"second", connection=8)
    cluster.beat(3, connection=8)
    new, cluster.epochs[3] = cluster.epochs[3], old
    assert alter(cluster, 2, 3).topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
    cluster.epochs[3] = new
    assert alter(cluster, 2, 3).topics[0].partitions[0].error_code == ErrorCode.NONE


def test_replica_in_a_directory_that_is_gone_hands_over(cluster: ControllerNode) -> None:
    request = assigning.AssignReplicasToDirsRequest(
        broker_id=2,
        broker_epoch=cluster.epochs[2],
        directories=[
            assigning.DirectoryData(
                id=b"not registered 2",
                topics=[assigning.TopicData(topic_id=TOPIC_ID, partitions=[assigning.PartitionData()])],
            )
        ],
    )
    assert cluster.ask(assign_replicas_to_dirs.handle, request, 2).error_code == ErrorCode.NONE
    assert cluster.image.topics["t"].partitions[0].leader == 3


def test_stale_broker_is_told_so_as_a_whole(cluster: ControllerNode) -> None:
    cluster.epochs[2] -= 1
    assert alter(cluster, 2) == altering.AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    request = assigning.AssignReplicasToDirsRequest(broker_id=2, broker_epoch=cluster.epochs[2])
    assert cluster.ask(assign_replicas_to_dirs.handle, request, 2) == assigning.AssignReplicasToDirsResponse(
        error_code=ErrorCode.STALE_BROKER_EPOCH
    )


def test_where_nothing_is_decided_each_partition_says_so(cluster: ControllerNode) -> None:
    timed_out = reassign(cluster, [4], timeout_ms=0)
    assert timed_out == AlterPartitionReassignmentsResponse(
        error_code=ErrorCode.REQUEST_TIMED_OUT,
        error_message=timed_out.error_message,
        responses=[
            ReassignableTopicResponse(
                name="t",
                partitions=[
                    ReassignablePartitionResponse(
                        error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=timed_out.error_message
                    )
                ],
            )
        ],
    )
    nothing = cluster.ask(alter_partition_reassignments.handle, AlterPartitionReassignmentsRequest(), version=1)
    assert (nothing.error_code, nothing.responses) == (ErrorCode.NONE, [])


def test_only_the_active_controller_answers(cluster: ControllerNode) -> None:
    cluster.controller.stop_leading(cluster.node.raft.epoch)
    assert alter(cluster, 2).error_code == ErrorCode.NOT_CONTROLLER
    assert reassign(cluster, [4]).error_code == ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError) as raised:
        listed(cluster)
    assert raised.value.code is ErrorCode.NOT_CONTROLLER


def test_who_moved_what_stands_in_the_log(cluster: ControllerNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.admin")
    handle = handler(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    for replicas in ([4, 3], None, None):
        partitions = [ReassignablePartition(partition_index=0, replicas=replicas)]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
        cluster.ask(handle, request)
    assert [
        record.getMessage().partition(", by")[0] for record in caplog.records if record.name == "tidelog.admin"
    ] == [
        "t-0 is reassigned to 4, 3",
        "the reassignment of t-0 was cancelled",
    ]


def test_partition_of_one_replica_gets_another_and_its_directory(cluster: ControllerNode) -> None:
    cluster.node.write(partition(1, TOPIC_ID, replicas=(2,)))
    found = cluster.image.topics["t"].partitions[1]
    assert (found.leader, found.isr) == (2, (2,))
    partitions = [ReassignablePartition(partition_index=1, replicas=[2, 4])]
    cluster.ask(
        alter_partition_reassignments.handle,
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)]),
    )
    found = cluster.image.topics["t"].partitions[1]
    assert (found.replicas, found.directories[1]) == ((2, 4), b"directory      4")
