"""Changing the settings of topics, groups and brokers: AlterConfigs and IncrementalAlterConfigs become ConfigRecords.

Each resource of a request succeeds or fails by itself. A topic's or group's settings are checked against their
declarations and answered with INVALID_CONFIG; a broker's against the broker's, answered, as Kafka does, with
INVALID_REQUEST. Names that a broker doesn't know are kept without effect, since Kafka takes them too (its plugins have
settings of their own).
Pure: (image, request) -> (records, outcomes).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tidelog.config.broker import BrokerConfig
from tidelog.config.cluster import HOST
from tidelog.config.group import GROUP_RESOURCE, GroupConfig, check_group
from tidelog.config.setting import ConfigError, Setting, Type
from tidelog.config.topic import STORAGE, TopicConfig, check_topic, resolve_topic
from tidelog.controller.bounds import CHANGES_MAX, VALUE_CHARACTERS_MAX
from tidelog.controller.limits import check_changes
from tidelog.controller.names import why_invalid
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.broker_replicas import replicas_of
from tidelog.metadata.image import BROKER_RESOURCE, NO_LEADER, TOPIC_RESOURCE, ClusterImage
from tidelog.metadata.versions import ELR_VERSION
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.metadata import ClearElrRecord, ConfigRecord, PartitionChangeRecord

RESOURCES_A_STEP = 16
CHANGES_A_STEP = 256
MIN_INSYNC_REPLICAS = "min.insync.replicas"

_WITHOUT_SETTINGS = {16: "Client metrics subscriptions"}
"""Resources that Kafka has settings for and Tidelog doesn't."""


_KEPT = {"disk": "on disk", "memory": "in memory"}


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One setting of a resource; `operation` is a number since it comes from a client."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """What is asked for one topic, group or broker. With `replaces`, what isn't named goes back to its default."""

    type: int
    name: str
    changes: tuple[Change, ...]
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


def alter_configs(
    image: ClusterImage,
    resources: Sequence[ResourceChange],
    *,
    broker: BrokerConfig,
    validate_only: bool = False,
) -> Steps[Decision[Any, list[Outcome]]]:
    """The records, and an outcome for each resource, in order. In steps; POLICY_VIOLATION where they are too many."""
    records: list[Any] = []
    outcomes: list[Outcome] = []
    checked = yield from check_resources(resources)
    for number, (resource, wrong) in enumerate(zip(resources, checked, strict=True), 1):
        if not number % RESOURCES_A_STEP:
            yield
        try:
            if wrong is None:
                records += yield from _alter(image, resource, broker)
            outcomes.append(wrong or Outcome())
        except KafkaError as error:
            outcomes.append(Outcome(error.code, error.message))
        check_changes(len(records), "settings")
    if validate_only:
        return Decision([], outcomes)
    if image.features.get(ELR_VERSION, 0) > 0:
        cleared = [
            record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
            for record in records
            if record.name == MIN_INSYNC_REPLICAS
        ]
        if cleared:
            records += [ClearElrRecord(topic_name=name) for name in cleared]
            records += yield from _still_eligible(image, cleared)
            check_changes(len(records), "settings")
    return Decision(records, outcomes)


def _still_eligible(image: ClusterImage, cleared: Sequence[str]) -> Steps[list[Any]]:
    """Where nobody is in sync, nobody commits anything, whatever the setting is: those who may lead when they come back
    still have all. Without them the partition would wait for an unclean election, with all its records there."""
    records: list[Any] = []
    names = None if "" in cleared else frozenset(cleared)
    looks = 0
    for name, indexes in list(replicas_of(image, NO_LEADER)):
        if names is not None and name not in names:
            continue
        topic = image.topics[name]
        for index in indexes:
            looks += 1
            if not looks % CHANGES_A_STEP:
                yield
            partition = topic.partitions[index]
            if not partition.isr and (partition.elr or partition.last_known_elr):
                records.append(
                    PartitionChangeRecord(
                        partition_id=index,
                        topic_id=topic.id,
                        eligible_leader_replicas=list(partition.elr) or None,
                        last_known_elr=list(partition.last_known_elr) or None,
                    )
                )
    return records


def check_resources(resources: Sequence[ResourceChange]) -> Steps[list[Outcome | None]]:
    """What can be said of each resource without looking at the cluster; None where it seems right."""
    counts: dict[tuple[int, str], int] = {}
    for number, resource in enumerate(resources, 1):
        counts[resource.type, resource.name] = counts.get((resource.type, resource.name), 0) + 1
        if not number % RESOURCES_A_STEP:
            yield
    outcomes: list[Outcome | None] = []
    for number, resource in enumerate(resources, 1):
        if not number % RESOURCES_A_STEP:
            yield
        try:
            if counts[resource.type, resource.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_shape(resource)
            outcomes.append(None)
        except KafkaError as error:
            outcomes.append(Outcome(error.code, error.message))
    return outcomes


def _alter(image: ClusterImage, resource: ResourceChange, broker: BrokerConfig) -> Steps[list[Any]]:
    if resource.type == TOPIC_RESOURCE:
        schema: Mapping[str, Setting] = TopicConfig.SETTINGS
    elif resource.type == BROKER_RESOURCE:
        schema = BrokerConfig.SETTINGS
        if resource.name:
            _node_id(resource.name)
    elif resource.type == GROUP_RESOURCE:
        schema = GroupConfig.SETTINGS
    else:
        kind = _WITHOUT_SETTINGS.get(resource.type)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{kind} have no settings in Tidelog yet" if kind else f"Unknown resource type {resource.type}",
        )
    before = image.configs.get((resource.type, resource.name), {})
    after: dict[str, str] = {} if resource.replaces else dict(before)
    for number, change in enumerate(resource.changes, 1):
        if not number % CHANGES_A_STEP:
            yield
        value = _changed(change, after.get(change.name), schema, resource.type)
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
    if len(after) > CHANGES_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{resource.name} would have {len(after)} settings; {CHANGES_MAX} are allowed"
        )
    if len(after) >= CHANGES_A_STEP:
        yield
    if resource.type == TOPIC_RESOURCE:
        _check_topic(image, resource.name, before, after, broker)
    elif resource.type == GROUP_RESOURCE:
        _check_group(resource.name, after, broker)
    else:
        _check_broker(image, resource, before, after, broker)
    if len(after) >= CHANGES_A_STEP:
        yield
    return (yield from _records(resource, before, after))


def _check_shape(resource: ResourceChange) -> None:
    names = [change.name for change in resource.changes]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    null = [change.name for change in resource.changes if change.value is None and change.operation != Operation.DELETE]
    if null:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Null value not supported for : " + ", ".join(null))
    check_sizes(change.value or "" for change in resource.changes)


def _node_id(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None


def check_own_id(name: str, node_id: int) -> None:
    """KafkaError where a broker is asked to change the settings of another one. The controller changes any broker's."""
    if _node_id(name) != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")


def _changed(change: Change, current: str | None, schema: Mapping[str, Setting], resource_type: int) -> str | None:
    """The setting's text after the change; None where it goes back to its default."""
    if change.operation == Operation.DELETE:
        return None
    value = change.value or ""
    if change.operation == Operation.SET:
        return value
    if change.operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.operation}")
    setting = schema.get(change.name)
    if setting is None or setting.type is not Type.LIST:
        raise KafkaError(ErrorCode.INVALID_CONFIG, _not_a_list(change, known=setting is not None, type=resource_type))
    default = setting.text(setting.default) or ""
    parts = [part for part in (default if current is None else current).split(",") if part]
    for part in value.rstrip(",").split(","):
        if change.operation == Operation.APPEND and part not in parts:
            parts.append(part)
        elif change.operation == Operation.SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _not_a_list(change: Change, *, known: bool, type: int) -> str:
    operation = Operation(change.operation).name
    if type != BROKER_RESOURCE:
        return f"Can't {operation} to key {change.name} because its type is not LIST."
    if not known:
        return f"Unknown config name: {change.name}"
    return f"Config value {operation.lower()} is not allowed for config key: {change.name}"


def _check_topic(
    image: ClusterImage, name: str, before: Mapping[str, str], after: Mapping[str, str], broker: BrokerConfig
) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_sizes(after.values())
    reason = why_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    try:
        wanted = check_topic(after, broker).tidelog_storage
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error
    if name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    storage = resolve_topic(before, broker).tidelog_storage
    if storage != wanted:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{STORAGE} is decided when a topic is made: '{name}' is kept {_KEPT[storage]} and stays there. Make "
            f"another topic with {STORAGE}={wanted} and copy the records; where all settings are given at once, name "
            f"{STORAGE}={storage} among them.",
        )


def _check_group(name: str, after: Mapping[str, str], broker: BrokerConfig) -> None:
    """The group itself needn't be there."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    check_sizes(after.values())
    try:
        check_group(after, broker)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error


def _check_broker(
    image: ClusterImage,
    resource: ResourceChange,
    before: Mapping[str, str],
    after: Mapping[str, str],
    broker: BrokerConfig,
) -> None:
    static = [name for name in after if name in BrokerConfig.SETTINGS and not BrokerConfig.SETTINGS[name].dynamic]
    fixed = sorted(name for name in static if name != HOST or not resource.name)  # a broker's word on itself
    if fixed:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    try:
        default = image.configs.get((BROKER_RESOURCE, ""), {}) if resource.name else after
        broker.check_dynamic(default, after if resource.name else {})
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error
    check_sizes(after.values())
    if image.features.get(ELR_VERSION, 0) > 0:
        _check_min_insync(resource, before, after)
    if resource.name and not _is_node(image, int(resource.name)):
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {resource.name} found.")


def _is_node(image: ClusterImage, id: int) -> bool:
    return id in image.brokers or id in image.controllers


def _check_min_insync(resource: ResourceChange, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Eligible leader replicas are counted against one value for all brokers, so that value must stay one."""
    touched = MIN_INSYNC_REPLICAS in after or any(change.name == MIN_INSYNC_REPLICAS for change in resource.changes)
    if resource.name and touched:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        )
    if not resource.name and MIN_INSYNC_REPLICAS not in after and (touched or MIN_INSYNC_REPLICAS in before):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        )


def check_sizes(values: Iterable[str]) -> None:
    """Raises where a setting's text is longer than a record can hold, before anything looks into it."""
    if any(len(value) > VALUE_CHARACTERS_MAX for value in values):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{VALUE_CHARACTERS_MAX} bytes.",
        )


def _records(resource: ResourceChange, before: Mapping[str, str], after: Mapping[str, str]) -> Steps[list[Any]]:
    """What is named in the request, where it changes something (for brokers always, so that they look again), then
    what falls away because it isn't named."""
    names = dict.fromkeys(change.name for change in resource.changes)
    always = resource.type == BROKER_RESOURCE
    written = [name for name in names if always or before.get(name) != after.get(name)]
    written += [name for name in before if name not in after and name not in names]
    records: list[Any] = []
    for name in written:
        records.append(
            ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=after.get(name))
        )
        if not len(records) % CHANGES_A_STEP:
            yield
    return records
