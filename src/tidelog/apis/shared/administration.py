"""Who changed what: a line in the log for each change that an administrator's request made, and none for a refused one.

A line says what was changed, by whom (without authentication everyone is User:ANONYMOUS, as in Kafka), under which
client id, and from where. A request that changes thousands of things has a few lines and a count. Values are told of
settings that are known; of others only the names, since they may hold secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tidelog.config.broker import BrokerConfig
from tidelog.config.group import GROUP_RESOURCE, GroupConfig
from tidelog.config.topic import TopicConfig
from tidelog.env.slices import outcome
from tidelog.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from tidelog.wire.keys import ApiKey

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.slices import Steps

LINES_MAX = 10
"""Lines of one request."""
SETTINGS_MAX = 20
NAME_CHARACTERS_MAX = 300
LOOKS_A_STEP = 1024
ANONYMOUS = "User:ANONYMOUS"
LOGGER_RESOURCE = 8
SET, DELETE = 0, 1

Changes: TypeAlias = "Callable[[Context, Any, Any], Iterator[str]]"

log = logging.getLogger("tidelog.admin")


def watched(key: int, handle: Callable[..., Any]) -> Callable[..., Any]:
    """The handler of an API, with a line for each change that it makes."""
    changes = CHANGES.get(key)
    if changes is None:
        return handle

    def handle_and_tell(context: Context, request: Any) -> Steps[Any]:
        response = yield from outcome(handle(context, request))
        if not getattr(request, "validate_only", False):
            yield from tell(context, changes(context, request, response))
        return response

    return handle_and_tell


def tell(context: Context, changes: Iterator[str]) -> Steps[None]:
    who = f"by {ANONYMOUS}{f' as {_short(context.client_id)}' if context.client_id else ''} from {context.client_host}"
    count = 0
    for change in changes:
        count += 1
        if count <= LINES_MAX:
            log.info("%s, %s", change, who)
        if not count % LOOKS_A_STEP:
            yield
    if count > LINES_MAX:
        log.info("%d more such changes, %s", count - LINES_MAX, who)


def topics_created(context: Context, request: Any, response: Any) -> Iterator[str]:
    topics = context.services.metadata.image.topics
    for result in response.topics:
        if not result.error_code:
            made = topics.get(result.name)
            count = "" if made is None else f" with {_count(len(made.partitions), 'partition')}"
            yield f"topic {result.name} was created{count}"


def _topics_deleted(context: Context, request: Any, response: Any) -> Iterator[str]:
    return (f"topic {result.name} was deleted" for result in response.responses if not result.error_code)


def _partitions_created(context: Context, request: Any, response: Any) -> Iterator[str]:
    wanted = {topic.name: topic.count for topic in request.topics}
    return (
        f"topic {result.name} has {wanted.get(result.name)} partitions now"
        for result in response.results
        if not result.error_code
    )


def _configs_altered(context: Context, request: Any, response: Any) -> Iterator[str]:
    for resource, result in zip(request.resources, response.responses, strict=False):
        if not result.error_code:
            some = [_setting(resource.resource_type, config) for config in resource.configs[:SETTINGS_MAX]]
            more = len(resource.configs) - len(some)
            settings = ", ".join(some) + (f" and {more} more" if more else "")
            replaced = "" if hasattr(resource.configs[0] if resource.configs else None, "config_operation") else "all "
            what = _resource(resource.resource_type, resource.resource_name)
            yield f"{what} was altered: {replaced}{settings or 'settings are defaults'}"


def _resource(kind: int, name: str) -> str:
    words = {TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker", GROUP_RESOURCE: "group", LOGGER_RESOURCE: "loggers of"}
    return f"{words.get(kind, f'resource {kind}')} {_short(name)}" if name else "the default of all brokers"


def _setting(kind: int, config: Any) -> str:
    known = {TOPIC_RESOURCE: TopicConfig, BROKER_RESOURCE: BrokerConfig, GROUP_RESOURCE: GroupConfig}.get(kind)
    if getattr(config, "config_operation", SET) == DELETE:
        return f"{_short(config.name)} unset"
    if kind == LOGGER_RESOURCE or (known is not None and config.name in known.SETTINGS):
        return f"{config.name}={_short(config.value or '')}"
    return _short(config.name)


def _records_deleted(context: Context, request: Any, response: Any) -> Iterator[str]:
    for topic in response.topics:
        for result in topic.partitions:
            if not result.error_code:
                place = f"{topic.name}-{result.partition_index}"
                yield f"records of {place} below offset {result.low_watermark} were deleted"


def _groups_deleted(context: Context, request: Any, response: Any) -> Iterator[str]:
    return (f"group {_short(result.group_id)} was deleted" for result in response.results if not result.error_code)


def _offsets_deleted(context: Context, request: Any, response: Any) -> Iterator[str]:
    for topic in response.topics:
        for result in topic.partitions:
            if not result.error_code and not response.error_code:
                place = f"{topic.name}-{result.partition_index}"
                yield f"the offset of group {_short(request.group_id)} in {place} was deleted"


def _leaders_elected(context: Context, request: Any, response: Any) -> Iterator[str]:
    for topic in response.replica_election_results:
        for result in topic.partition_result:
            if not result.error_code and not response.error_code:
                yield f"the leader of {topic.topic}-{result.partition_id} was elected"


def _partitions_reassigned(context: Context, request: Any, response: Any) -> Iterator[str]:
    if response.error_code:
        return
    for topic, answered in zip(request.topics, response.responses, strict=False):
        for partition, result in zip(topic.partitions, answered.partitions, strict=False):
            if not result.error_code:
                place = f"{_short(topic.name)}-{partition.partition_index}"
                if partition.replicas is None:
                    yield f"the reassignment of {place} was cancelled"
                else:
                    yield f"{place} is reassigned to {', '.join(map(str, partition.replicas[:SETTINGS_MAX]))}"


def _features_updated(context: Context, request: Any, response: Any) -> Iterator[str]:
    if not response.error_code:
        for update in request.feature_updates:
            yield f"feature {_short(update.feature)} was set to level {update.max_version_level}"


def _transactions_ended(context: Context, request: Any, response: Any) -> Iterator[str]:
    for marker, result in zip(request.markers, response.markers, strict=False):
        how = "committed" if marker.transaction_result else "aborted"
        for topic in result.topics:
            for each in topic.partitions:
                if not each.error_code:
                    place = f"{topic.name}-{each.partition_index}"
                    yield f"the transaction of producer {marker.producer_id} in {place} was {how}"


CHANGES: dict[int, Changes] = {
    ApiKey.CREATE_TOPICS: topics_created,
    ApiKey.DELETE_TOPICS: _topics_deleted,
    ApiKey.CREATE_PARTITIONS: _partitions_created,
    ApiKey.ALTER_CONFIGS: _configs_altered,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs_altered,
    ApiKey.DELETE_RECORDS: _records_deleted,
    ApiKey.DELETE_GROUPS: _groups_deleted,
    ApiKey.OFFSET_DELETE: _offsets_deleted,
    ApiKey.ELECT_LEADERS: _leaders_elected,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _partitions_reassigned,
    ApiKey.UPDATE_FEATURES: _features_updated,
    ApiKey.WRITE_TXN_MARKERS: _transactions_ended,
}


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _short(text: str) -> str:
    return text if len(text) <= NAME_CHARACTERS_MAX else f"{text[:NAME_CHARACTERS_MAX]}..."
