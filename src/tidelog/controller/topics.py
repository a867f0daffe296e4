"""Topics: created, deleted, given more partitions. Each fares on its own; all that succeed are one change.

In steps, as a change may be one of thousands of them. Each has a bound on what one request may ask for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidelog.controller.assignments import Assigner, NewPartition, manual
from tidelog.controller.bounds import CHANGES_MAX
from tidelog.controller.leaders import Defaults
from tidelog.controller.limits import check_changes, check_in_memory
from tidelog.controller.names import METADATA_TOPIC, check_deletion, check_growth, colliding, why_invalid
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.image import TOPIC_RESOURCE, ClusterImage
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
from tidelog.wire.records.metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from tidelog.wire.uuids import ZERO_UUID

NAMES_A_STEP = 256
TOPICS_A_STEP = 16
PARTITIONS_A_STEP = 64

CompleteConfigs = Callable[[str, Mapping[str, str]], Mapping[str, str]]
"""What a topic is made with where these overrides are asked for. Raises KafkaError(INVALID_CONFIG)."""
DescribeConfigs = Callable[[Mapping[str, str]], list[CreatableTopicConfigs]]
"""All settings that a topic with these overrides has, as CreateTopics tells them."""


def create_topics(
    image: ClusterImage,
    request: CreateTopicsRequest,
    new_id: Callable[[], bytes],
    defaults: Defaults,
    complete_configs: CompleteConfigs,
    describe_configs: DescribeConfigs,
) -> Steps[Decision[Any, CreateTopicsResponse]]:
    """`new_id` makes topic ids. With `validate_only` everything is checked and nothing written."""
    _check_total(request, defaults)
    records: list[Any] = []
    results: list[CreatableTopicResult] = []
    counts = yield from _counts(topic.name for topic in request.topics)
    assigner = Assigner(image)
    for number, topic in enumerate(request.topics, 1):
        if not number % TOPICS_A_STEP:
            yield
        if counts[topic.name] > 1 or topic.name == METADATA_TOPIC:
            continue
        try:
            made, result = yield from _create_topic(
                image, topic, new_id, assigner, defaults, complete_configs, describe_configs
            )
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
    return Decision([] if request.validate_only else records, CreateTopicsResponse(topics=results))


def _counts(names: Iterable[str]) -> Steps[dict[str, int]]:
    """How often each is there, in the order in which they come first."""
    counts: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        counts[name] = counts.get(name, 0) + 1
        if not number % NAMES_A_STEP:
            yield
    return counts


def _refused(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def _check_total(request: CreateTopicsRequest, defaults: Defaults) -> None:
    """As Kafka does, before anything is looked at more closely."""
    total = 0
    for topic in request.topics:
        wanted = defaults.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        total += len(topic.assignments) or max(0, wanted)
    check_changes(total, "partitions")
    check_changes(sum(len(topic.configs) for topic in request.topics), "settings")


def _create_topic(
    image: ClusterImage,
    topic: CreatableTopic,
    new_id: Callable[[], bytes],
    assigner: Assigner,
    defaults: Defaults,
    complete_configs: CompleteConfigs,
    describe_configs: DescribeConfigs,
) -> Steps[Decision[Any, CreatableTopicResult]]:
    _check_name(image, topic.name)
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Topic configs must have a value, these have none: {', '.join(nulls)}"
        )
    asked = {config.name: config.value for config in topic.configs if config.value is not None}
    configs = complete_configs(topic.name, asked)
    topic_id = new_id()
    partitions = yield from _first_partitions(image, topic, topic_id, assigner, defaults)
    check_in_memory(topic.name, configs, max(len(partition.replicas) for partition in partitions))
    records: list[Any] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
        for name, value in configs.items()
    ]
    records += yield from partition_records(topic_id, 0, partitions)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=describe_configs(configs),
    )
    return Decision(records, result)


def _check_name(image: ClusterImage, name: str) -> None:
    reason = why_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = colliding(image, name)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with topic '{other}', which exists."
        )


def _first_partitions(
    image: ClusterImage, topic: CreatableTopic, topic_id: bytes, assigner: Assigner, defaults: Defaults
) -> Steps[Sequence[NewPartition]]:
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
        return (yield from manual(image, [by_index[index] for index in range(len(by_index))], 0, None))
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
    return assigner.place(topic_id, 0, count, factor)


def partition_records(topic_id: bytes, first: int, partitions: Sequence[NewPartition]) -> Steps[list[Any]]:
    """Records of partitions that are alike share what they have in common."""
    records: list[Any] = []
    alike: dict[NewPartition, dict[str, Any]] = {}
    for index, new in enumerate(partitions, first):
        fields = alike.get(new)
        if fields is None:
            fields = alike[new] = {
                "replicas": list(new.replicas),
                "isr": list(new.isr),
                "leader": new.isr[0],
                "leader_epoch": 0,
                "partition_epoch": 0,
                "directories": list(new.directories),
                "removing_replicas": [],
                "adding_replicas": [],
            }
        records.append(PartitionRecord(partition_id=index, topic_id=topic_id, **fields))
        if len(records) % PARTITIONS_A_STEP == 0:
            yield
    return records


def delete_topics(image: ClusterImage, request: DeleteTopicsRequest) -> Steps[Decision[Any, DeleteTopicsResponse]]:
    """By name or by id; a topic that is named twice is refused as a duplicate and stays."""
    results: list[DeletableTopicResult] = []
    names = yield from _counts(request.topic_names)
    ids: dict[bytes, int] = {}
    for number, topic in enumerate(request.topics, 1):
        if not number % NAMES_A_STEP:
            yield
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
    for number, (name, count) in enumerate(names.items(), 1):
        if not number % PARTITIONS_A_STEP:
            yield
        known = image.topics.get(name)
        if count > 1:
            results.append(_not_deleted(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif known is None:
            results.append(
                _not_deleted(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
            )
        else:
            doomed[known.id] = name
    for number, (topic_id, count) in enumerate(ids.items(), 1):
        if not number % PARTITIONS_A_STEP:
            yield
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
    check_changes(len(doomed), "topics")
    records: list[Any] = []
    for number, (topic_id, name) in enumerate(doomed.items(), 1):
        if not number % PARTITIONS_A_STEP:
            yield
        try:
            check_deletion(name)
        except KafkaError as error:
            results.append(_not_deleted(name, topic_id, error.code, error.message))
        else:
            results.append(DeletableTopicResult(name=name, topic_id=topic_id))
            records.append(RemoveTopicRecord(topic_id=topic_id))
    return Decision(records, DeleteTopicsResponse(responses=results))


def _not_deleted(name: str | None, topic_id: bytes, code: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


def create_partitions(
    image: ClusterImage, request: CreatePartitionsRequest
) -> Steps[Decision[Any, CreatePartitionsResponse]]:
    """More partitions for topics that exist; those there are stay as they are."""
    records: list[Any] = []
    results: list[CreatePartitionsTopicResult] = []
    counts = yield from _counts(topic.name for topic in request.topics)
    assigner = Assigner(image)
    results += [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name, count in counts.items()
        if count > 1
    ]
    for number, topic in enumerate(request.topics, 1):
        if not number % TOPICS_A_STEP:
            yield
        if counts[topic.name] > 1:
            continue
        try:
            made = _more_partitions(image, topic, assigner, CHANGES_MAX - len(records))
            records += yield from made
        except KafkaError as error:
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            )
        else:
            results.append(CreatePartitionsTopicResult(name=topic.name))
    return Decision([] if request.validate_only else records, CreatePartitionsResponse(results=results))


def _more_partitions(
    image: ClusterImage, topic: CreatePartitionsTopic, assigner: Assigner, room: int
) -> Steps[list[Any]]:
    """Its new partitions' records; `room` is how many the request may still have."""
    known = image.topics.get(topic.name)
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(known.partitions)
    check_growth(topic.name, present)
    if topic.count <= present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} has {present} partition(s) already; {topic.count} would not be an increase.",
        )
    more = topic.count - present
    check_changes(more + CHANGES_MAX - room, "new partitions")
    factor = len(known.partitions[0].replicas)
    if topic.assignments is None:
        return (yield from partition_records(known.id, present, assigner.place(known.id, present, more, factor)))
    if len(topic.assignments) != more:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partition(s) are to be added, {len(topic.assignments)} assignment(s) were given.",
        )
    assigned = [assignment.broker_ids for assignment in topic.assignments]
    made = yield from manual(image, assigned, present, factor)
    return (yield from partition_records(known.id, present, made))
