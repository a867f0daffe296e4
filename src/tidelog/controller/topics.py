"""Topics: created, deleted, given more partitions. Each fares on its own; all that succeed are one change."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog.controller.assignments import NewPartition, manual, new_partitions
from tidelog.controller.leaders import Defaults
from tidelog.controller.names import METADATA_TOPIC, colliding, why_invalid
from tidelog.metadata.image import TOPIC_RESOURCE, ClusterImage, PartitionImage
from tidelog.metadata.records import partition_record
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.wire.records.metadata import ConfigRecord, RemoveTopicRecord, TopicRecord
from tidelog.wire.uuids import ZERO_UUID

PARTITIONS_PER_REQUEST_MAX = 100_000
"""Kafka allows 10,000 records in one request; see docs/differences.md."""

CheckConfigs = Callable[[str, Mapping[str, str]], None]
"""Raises KafkaError(INVALID_CONFIG) where a topic can't have these overrides."""
DescribeConfigs = Callable[[Mapping[str, str]], list[CreatableTopicConfigs]]
"""All settings that a topic with these overrides has, as CreateTopics tells them."""


def create_topics(
    image: ClusterImage,
    request: CreateTopicsRequest,
    new_id: Callable[[], bytes],
    defaults: Defaults,
    check_configs: CheckConfigs,
    describe_configs: DescribeConfigs,
) -> tuple[list[Any], CreateTopicsResponse]:
    """`new_id` makes topic ids. With `validate_only` everything is checked and nothing written."""
    _check_total(request, defaults)
    records: list[Any] = []
    results: list[CreatableTopicResult] = []
    counts: dict[str, int] = {}
    for topic in request.topics:
        counts[topic.name] = counts.get(topic.name, 0) + 1
    for topic in request.topics:
        if counts[topic.name] > 1 or topic.name == METADATA_TOPIC:
            continue
        try:
            made, result = _create_topic(image, topic, new_id, defaults, check_configs, describe_configs)
        except KafkaError as error:
            result = _refused(topic.name, error.code, error.message)
        else:
            records.extend(made)
        results.append(result)
    for name, count in counts.items():
        if count > 1:
            results.append(
                _refused(name, ErrorCode.INVALID_REQUEST, f"Topic '{name}' stands {count} times in the request.")
            )
        elif name == METADATA_TOPIC:
            results.append(_refused(name, ErrorCode.INVALID_REQUEST, f"The internal topic {name} can't be created."))
    return ([] if request.validate_only else records), CreateTopicsResponse(topics=results)


def _refused(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def _check_total(request: CreateTopicsRequest, defaults: Defaults) -> None:
    total = 0
    for topic in request.topics:
        wanted = defaults.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        total += len(topic.assignments) or max(0, wanted)
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{total} partitions in one request; {PARTITIONS_PER_REQUEST_MAX} are allowed"
        )


def _create_topic(
    image: ClusterImage,
    topic: CreatableTopic,
    new_id: Callable[[], bytes],
    defaults: Defaults,
    check_configs: CheckConfigs,
    describe_configs: DescribeConfigs,
) -> tuple[list[Any], CreatableTopicResult]:
    _check_name(image, topic.name)
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Topic configs must have a value, these have none: {', '.join(nulls)}"
        )
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    check_configs(topic.name, configs)
    topic_id = new_id()
    partitions = _first_partitions(image, topic, topic_id, defaults)
    records: list[Any] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
        for name, value in configs.items()
    ]
    records += partition_records(topic_id, 0, partitions)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=describe_configs(configs),
    )
    return records, result


def _check_name(image: ClusterImage, name: str) -> None:
    reason = why_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = colliding(name, image.topics)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with topic '{other}', which exists."
        )


def _first_partitions(
    image: ClusterImage, topic: CreatableTopic, topic_id: bytes, defaults: Defaults
) -> Sequence[NewPartition]:
    if topic.assignments:
        if topic.replication_factor != -1 or topic.num_partitions != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "With a manual assignment, the number of partitions and the replication factor must be -1.",
            )
        by_index: dict[int, Sequence[int]] = {}
        for assignment in topic.assignments:
            if assignment.partition_index in by_index:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Partition {assignment.partition_index} is assigned more than once.",
                )
            by_index[assignment.partition_index] = assignment.broker_ids
        if set(by_index) != set(range(len(by_index))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions are numbered from 0 without a gap.")
        return manual(image, [by_index[index] for index in range(len(by_index))], 0, None)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1 for the default."
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0, or -1 for the default."
        )
    count = defaults.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = defaults.replication_factor if topic.replication_factor == -1 else topic.replication_factor
    return new_partitions(image, topic_id, 0, count, factor)


def partition_records(topic_id: bytes, first: int, partitions: Sequence[NewPartition]) -> list[Any]:
    return [
        partition_record(
            topic_id,
            index,
            PartitionImage(
                replicas=new.replicas,
                isr=new.isr,
                leader=new.isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=new.directories,
            ),
        )
        for index, new in enumerate(partitions, first)
    ]


def delete_topics(image: ClusterImage, request: DeleteTopicsRequest) -> tuple[list[Any], DeleteTopicsResponse]:
    """By name or by id; a topic that is named twice is refused as a duplicate and stays."""
    results: list[DeletableTopicResult] = []
    names: dict[str, int] = {}
    ids: dict[bytes, int] = {}
    for name in request.topic_names:
        names[name] = names.get(name, 0) + 1
    for topic in request.topics:
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            results.append(
                _not_deleted(
                    topic.name,
                    topic.topic_id,
                    ErrorCode.INVALID_REQUEST,
                    "A topic is named by name or by id, not both.",
                )
            )
        elif topic.name is not None:
            names[topic.name] = names.get(topic.name, 0) + 1
        elif topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] = ids.get(topic.topic_id, 0) + 1
        else:
            results.append(_not_deleted(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "A topic has neither name nor id."))
    doomed: dict[bytes, str] = {}
    for name, count in names.items():
        known = image.topics.get(name)
        if count > 1:
            results.append(_not_deleted(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif known is None:
            results.append(
                _not_deleted(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
            )
        else:
            doomed[known.id] = name
    for topic_id, count in ids.items():
        known = image.topics_by_id.get(topic_id)
        if count > 1:
            results.append(_not_deleted(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id."))
        elif known is None:
            results.append(_not_deleted(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id."))
        elif topic_id in doomed:
            del doomed[topic_id]
            results.append(
                _not_deleted(known.name, topic_id, ErrorCode.INVALID_REQUEST, "The topic is named by name and by id.")
            )
        else:
            doomed[topic_id] = known.name
    results += [DeletableTopicResult(name=name, topic_id=topic_id) for topic_id, name in doomed.items()]
    return [RemoveTopicRecord(topic_id=topic_id) for topic_id in doomed], DeleteTopicsResponse(responses=results)


def _not_deleted(name: str | None, topic_id: bytes, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


def create_partitions(
    image: ClusterImage, request: CreatePartitionsRequest
) -> tuple[list[Any], CreatePartitionsResponse]:
    """More partitions for topics that exist; those there are stay as they are."""
    records: list[Any] = []
    results: list[CreatePartitionsTopicResult] = []
    counts: dict[str, int] = {}
    for topic in request.topics:
        counts[topic.name] = counts.get(topic.name, 0) + 1
    results += [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name, count in counts.items()
        if count > 1
    ]
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        try:
            records += _more_partitions(image, topic)
        except KafkaError as error:
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            )
        else:
            results.append(CreatePartitionsTopicResult(name=topic.name))
    return ([] if request.validate_only else records), CreatePartitionsResponse(results=results)


def _more_partitions(image: ClusterImage, topic: CreatePartitionsTopic) -> list[Any]:
    known = image.topics.get(topic.name)
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(known.partitions)
    if topic.count <= present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} has {present} partition(s) already; {topic.count} would not be an increase.",
        )
    more = topic.count - present
    if more > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{more} partitions in one request; {PARTITIONS_PER_REQUEST_MAX} are allowed"
        )
    factor = len(known.partitions[0].replicas)
    if topic.assignments is None:
        return partition_records(known.id, present, new_partitions(image, known.id, present, more, factor))
    if len(topic.assignments) != more:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partition(s) are to be added, {len(topic.assignments)} assignment(s) were given.",
        )
    assigned = [assignment.broker_ids for assignment in topic.assignments]
    return partition_records(known.id, present, manual(image, assigned, present, factor))
