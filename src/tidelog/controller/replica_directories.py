"""AssignReplicasToDirs: a broker says in which of its directories its replicas are (KIP-858).

A replica whose directory the broker hasn't registered, or registered and lost, isn't there: it leaves the ISR, and
another one leads.
"""

from dataclasses import replace
from typing import Any

from tidelog.controller.brokers import check_epoch, is_online
from tidelog.controller.changes import Changes
from tidelog.controller.leaders import Defaults
from tidelog.controller.partition_change import Election, as_it_is
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.image import BrokerImage, ClusterImage, TopicImage
from tidelog.metadata.versions import MV_3_7_IV2
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    DirectoryResult,
    PartitionResult,
    TopicResult,
)

PARTITIONS_A_STEP = 64


def assign_replicas(
    image: ClusterImage, request: AssignReplicasToDirsRequest, defaults: Defaults
) -> Steps[Decision[Any, AssignReplicasToDirsResponse]]:
    if image.metadata_version < MV_3_7_IV2:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the cluster's metadata.version knows no directories")
    broker = check_epoch(image, request.broker_id, request.broker_epoch)
    changes = Changes(image, defaults)
    gone: list[tuple[TopicImage, int]] = []
    directories: list[DirectoryResult] = []
    for directory in request.directories:
        topics = yield from _assign(image, broker, directory, changes, gone)
        directories.append(DirectoryResult(id=directory.id, topics=topics))
    for number, (topic, index) in enumerate(gone, 1):
        if not number % PARTITIONS_A_STEP:
            yield
        partition = changes.partition(topic, index)
        assert partition is not None
        isr = tuple(replica for replica in partition.isr if replica != broker.id)
        changes.change(topic, index, replace(as_it_is(partition), isr=isr), leaving=broker.id)
    return Decision(changes.records, AssignReplicasToDirsResponse(directories=directories))


def _assign(
    image: ClusterImage,
    broker: BrokerImage,
    directory: DirectoryData,
    changes: Changes,
    gone: list[tuple[TopicImage, int]],
) -> Steps[list[TopicResult]]:
    topics: list[TopicResult] = []
    looks = 0
    online = is_online(broker, directory.id)
    for asked in directory.topics:
        topic = image.topics_by_id.get(asked.topic_id)
        results: list[PartitionResult] = []
        for data in asked.partitions:
            looks += 1
            if not looks % PARTITIONS_A_STEP:
                yield
            index = data.partition_index
            code = _assign_one(changes, topic, index, broker.id, directory.id)
            if topic is not None and code is ErrorCode.NONE and not online:
                gone.append((topic, index))
            results.append(PartitionResult(partition_index=index, error_code=code))
        topics.append(TopicResult(topic_id=asked.topic_id, partitions=results))
    return topics


def _assign_one(changes: Changes, topic: TopicImage | None, index: int, broker_id: int, directory: bytes) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = changes.partition(topic, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    target = replace(as_it_is(partition), directories=((broker_id, directory),))
    changes.change(topic, index, target, election=Election.ONLINE)
    return ErrorCode.NONE
