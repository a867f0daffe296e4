"""DescribeConfigs (key 32): the settings of topics, groups and brokers: values, types, and where they come from.

A setting's source is the first of: the topic's or group's own, the broker's own dynamic one, the dynamic default of
all brokers, what the broker was started with, the default. Its synonyms are all of these that are there, in that
order. A broker is asked for itself by its id, and by "" for the dynamic defaults of all. A broker's loggers are a
resource too. A name that isn't known may hold a secret: its value isn't told.

v1 tells synonyms, v3 types and documentation, v4 is flexible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidelog.apis.loggers import LOGGER_RESOURCE, levels
from tidelog.config.broker import BrokerConfig, synonyms
from tidelog.config.group import BROKER_SYNONYMS as GROUP_SYNONYMS
from tidelog.config.group import GROUP_RESOURCE, GroupConfig, resolve_group
from tidelog.config.setting import Setting, Value
from tidelog.config.topic import BROKER_SYNONYMS, TopicConfig, resolve_topic
from tidelog.controller.names import why_invalid
from tidelog.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context

FROM_TOPIC = 1
FROM_BROKER = 2
FROM_ALL_BROKERS = 3
FROM_START = 4
FROM_DEFAULT = 5
FROM_LOGGER = 6
FROM_GROUP = 8
UNKNOWN_TYPE = 0
RESOURCES_MAX = 5000
"""Resources that one request may describe: each takes some 40 times the bytes of its name in the answer."""
NOT_SHOWN = frozenset(
    ("internal.segment.bytes", "log.initial.task.delay.ms", "producer.id.expiration.check.interval.ms")
)
"""Settings that are there for tests."""


def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = [_describe(context, request, resource) for resource in request.resources[:RESOURCES_MAX]]
    results += [
        DescribeConfigsResult(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"More than {RESOURCES_MAX} resources in one request: ask for the rest in another.",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources[RESOURCES_MAX:]
    ]
    return DescribeConfigsResponse(results=results)


def _describe(
    context: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        if resource.resource_type == TOPIC_RESOURCE:
            entries = _topic_entries(context, resource.resource_name)
        elif resource.resource_type == BROKER_RESOURCE:
            entries = _broker_entries(context, resource.resource_name)
        elif resource.resource_type == GROUP_RESOURCE:
            entries = _group_entries(context, resource.resource_name)
        elif resource.resource_type == LOGGER_RESOURCE:
            entries = _logger_entries(context, resource.resource_name)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message or ""
        return result
    asked = resource.configuration_keys
    for entry in entries:
        if not asked or entry.name in asked:
            if not request.include_synonyms:
                entry.synonyms = []
            if not request.include_documentation and resource.resource_type != LOGGER_RESOURCE:
                entry.documentation = None
            result.configs.append(entry)
    return result


def _topic_entries(context: Context, name: str) -> Iterable[DescribeConfigsResourceResult]:
    reason = why_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    image = context.services.metadata.image
    if name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic_entries(image.topic_config(name), context.services.config)


def topic_entries(own: Mapping[str, str], broker: BrokerConfig) -> Iterable[DescribeConfigsResourceResult]:
    """Every setting of a topic that sets `own`."""
    values = resolve_topic(own, broker)
    for setting in TopicConfig.SETTINGS.values():
        if setting.name in NOT_SHOWN and setting.name not in own:
            continue
        found: list[DescribeConfigsSynonym] = []
        if setting.name in own:
            text = setting.text(getattr(values, setting.attribute))
            found.append(DescribeConfigsSynonym(name=setting.name, value=text, source=FROM_TOPIC))
        synonym = BROKER_SYNONYMS.get(setting.name)
        if synonym is not None:
            found += _broker_synonyms(broker, synonym)
        yield _entry(setting, getattr(values, setting.attribute), found, read_only=False)
    yield from (_unknown(name, FROM_TOPIC) for name in own if name not in TopicConfig.SETTINGS)


def _group_entries(context: Context, name: str) -> Iterable[DescribeConfigsResourceResult]:
    """Every setting of a group, whether there is one of that name or not."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    own = context.services.metadata.image.configs.get((GROUP_RESOURCE, name), {})
    return _all_of_group(context.services.config, own)


def _all_of_group(broker: BrokerConfig, own: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
    values = resolve_group(own, broker)
    for setting in GroupConfig.SETTINGS.values():
        text = setting.text(getattr(values, setting.attribute))
        found = _broker_synonyms(broker, GROUP_SYNONYMS[setting.name])
        if setting.name in own:
            found = [DescribeConfigsSynonym(name=setting.name, value=text, source=FROM_GROUP), *found]
        yield _entry(setting, getattr(values, setting.attribute), found, read_only=False)
    yield from (_unknown(name, FROM_GROUP) for name in own if name not in GroupConfig.SETTINGS)


def _broker_entries(context: Context, name: str) -> Iterable[DescribeConfigsResourceResult]:
    config = context.services.config
    image = context.services.metadata.image
    default = image.configs.get((BROKER_RESOURCE, ""), {})
    if not name:
        return _dynamic_defaults(config, default)
    _check_id(context, name, " or empty string,")
    own = image.configs.get((BROKER_RESOURCE, name), {})
    return _all_of_broker(config, default, own)


def _check_id(context: Context, name: str, otherwise: str) -> None:
    """A broker describes itself only."""
    node_id = context.services.node_id
    try:
        broker_id = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}{otherwise} but received {name}"
        )


def _logger_entries(context: Context, name: str) -> Iterable[DescribeConfigsResourceResult]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_id(context, name, "")
    return [
        DescribeConfigsResourceResult(name=logger, value=level, config_source=FROM_LOGGER)
        for logger, level in levels().items()
    ]


def _all_of_broker(
    config: BrokerConfig, default: Mapping[str, str], own: Mapping[str, str]
) -> Iterable[DescribeConfigsResourceResult]:
    for setting in BrokerConfig.SETTINGS.values():
        if setting.name not in NOT_SHOWN or config.is_given(setting.name):
            value = getattr(config, setting.attribute)
            yield _entry(setting, value, _broker_synonyms(config, setting.name), read_only=not setting.dynamic)
    yield from (_unknown(name, FROM_BROKER) for name in own if name not in BrokerConfig.SETTINGS)
    yield from (
        _unknown(name, FROM_ALL_BROKERS) for name in default if name not in BrokerConfig.SETTINGS and name not in own
    )


def _dynamic_defaults(config: BrokerConfig, default: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
    for name, text in default.items():
        setting = BrokerConfig.SETTINGS.get(name)
        if setting is None:
            yield _unknown(name, FROM_ALL_BROKERS)
        elif name in config.dynamic_default:
            found = [one for one in _broker_synonyms(config, name) if one.source == FROM_ALL_BROKERS]
            yield _entry(setting, text, found, read_only=not setting.dynamic)


def _broker_synonyms(config: BrokerConfig, name: str) -> list[DescribeConfigsSynonym]:
    """Where the broker's setting gets its value from, the one that counts first; from `name` itself on."""
    same = synonyms(name)
    found = [
        DescribeConfigsSynonym(name=one, value=given[one], source=source)
        for given, source in (
            (config.dynamic_own, FROM_BROKER),
            (config.dynamic_default, FROM_ALL_BROKERS),
            (config.static, FROM_START),
        )
        for one in same
        if one in given
    ]
    for one in same:
        setting = config.SETTINGS[one]
        text = setting.text(setting.default)
        if text is not None:
            found.append(DescribeConfigsSynonym(name=one, value=text, source=FROM_DEFAULT))
    while found and found[0].name != name:
        del found[0]
    return found


def _entry(
    setting: Setting, value: Value, found: list[DescribeConfigsSynonym], *, read_only: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.text(value),
        read_only=read_only,
        config_source=found[0].source if found else FROM_DEFAULT,
        synonyms=found,
        config_type=setting.type,
        documentation=setting.doc,
    )


def _unknown(name: str, source: int) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=None,
        read_only=source not in (FROM_TOPIC, FROM_GROUP),
        config_source=source,
        is_sensitive=True,
        synonyms=[DescribeConfigsSynonym(name=name, value=None, source=source)],
        config_type=UNKNOWN_TYPE,
        documentation=None,
    )
