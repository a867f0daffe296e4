"""DescribeConfigs (key 32): the settings of topics, groups and brokers: values, types, and where they come from.

A setting's source is the first of: the topic's or group's own, the broker's own dynamic one, the dynamic default of
all brokers, what the broker was started with, the default. Its synonyms are all of these that are there, in that
order. A broker is asked for itself by its id, and by "" for the dynamic defaults of all. A broker's loggers are a
resource too. What a broker knows of itself comes with its settings (shared/broker_facts.py). A name that isn't known
may hold a secret: its value isn't told. What is named again and again isn't answered as often (`repeats`).

v1 tells synonyms, v3 types and documentation, v4 is flexible.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from tidelog.apis.bounds import DESCRIBED_RESOURCES_MAX
from tidelog.apis.shared.broker_facts import FACTS
from tidelog.apis.shared.loggers import LOGGER_RESOURCE, levels
from tidelog.apis.shared.repeats import bounded
from tidelog.config.broker import BrokerConfig, synonyms
from tidelog.config.group import BROKER_SYNONYMS as GROUP_SYNONYMS
from tidelog.config.group import GROUP_RESOURCE, GroupConfig, resolve_group
from tidelog.config.setting import Setting, Type, Value
from tidelog.config.topic import BROKER_SYNONYMS, TopicConfig, resolve_topic
from tidelog.controller.names import why_invalid
from tidelog.env.slices import Steps, mapped
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
    from tidelog.apis.shared.context import Context
    from tidelog.metadata.image import ClusterImage

FROM_TOPIC = 1
FROM_BROKER = 2
FROM_ALL_BROKERS = 3
FROM_START = 4
FROM_DEFAULT = 5
FROM_LOGGER = 6
FROM_GROUP = 8
UNKNOWN_TYPE = 0
NOT_SHOWN = frozenset(
    (
        "group.consumer.regex.refresh.interval.ms",
        "internal.segment.bytes",
        "log.initial.task.delay.ms",
        "producer.id.expiration.check.interval.ms",
    )
)
"""Settings that Kafka calls internal: shown only where they are given."""


def handle(context: Context, request: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
    resources = yield from bounded(request.resources, _what)
    describing = _Describing(context, request)
    results = yield from mapped(describing.describe, resources[:DESCRIBED_RESOURCES_MAX], 1)
    results += yield from mapped(_too_many, resources[DESCRIBED_RESOURCES_MAX:])
    return DescribeConfigsResponse(results=results)


def _what(resource: DescribeConfigsResource) -> Hashable:
    return resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())


def _too_many(resource: DescribeConfigsResource) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"More than {DESCRIBED_RESOURCES_MAX} resources in one request: ask for the rest in another.",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


class _Describing:
    """The resources of one request. Those with the same settings of their own share their entries, which are many."""

    def __init__(self, context: Context, request: DescribeConfigsRequest) -> None:
        self._context = context
        self._synonyms = request.include_synonyms
        self._documentation = request.include_documentation
        self._made: dict[tuple[Hashable, ...], list[DescribeConfigsResourceResult]] = {}

    def describe(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            entries = self._entries(resource.resource_type, resource.resource_name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message or ""
            return result
        asked = resource.configuration_keys
        if asked:
            names = frozenset(asked)
            entries = [entry for entry in entries if entry.name in names]
        result.configs = entries
        return result

    def _entries(self, kind: int, name: str) -> list[DescribeConfigsResourceResult]:
        services = self._context.services
        config, image = services.config, services.metadata.image
        if kind == TOPIC_RESOURCE:
            own = _topic_settings(image, name)
            return self._shared((kind, *own.items()), lambda: topic_entries(own, config))
        if kind == GROUP_RESOURCE:
            own = _group_settings(image, name)
            return self._shared((kind, *own.items()), lambda: _all_of_group(config, own))
        if kind == BROKER_RESOURCE:
            if name:
                _check_id(services.node_id, name, " or empty string,")
            return self._shared((kind, name), lambda: _broker_entries(config, image, name, services.facts()))
        if kind == LOGGER_RESOURCE:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _check_id(services.node_id, name, "")
            return self._shared((kind,), _logger_entries)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")

    def _shared(
        self, alike: tuple[Hashable, ...], make: Callable[[], Iterable[DescribeConfigsResourceResult]]
    ) -> list[DescribeConfigsResourceResult]:
        """What resources that are alike have: as much of it as the client wants to know."""
        made = self._made.get(alike)
        if made is None:
            made = self._made[alike] = list(make())
            for entry in made:
                if not self._synonyms:
                    entry.synonyms = []
                if not self._documentation and alike[0] != LOGGER_RESOURCE:
                    entry.documentation = None
        return made


def _topic_settings(image: ClusterImage, name: str) -> Mapping[str, str]:
    reason = why_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return image.topic_config(name)


def topic_entries(own: Mapping[str, str], broker: BrokerConfig) -> Iterable[DescribeConfigsResourceResult]:
    """Every setting of a topic that sets `own`."""
    values = resolve_topic(own, broker)
    for setting in TopicConfig.SETTINGS.values():
        if setting.name in NOT_SHOWN and setting.name not in own:
            continue
        synonyms: list[DescribeConfigsSynonym] = []
        if setting.name in own:
            text = setting.text(getattr(values, setting.attribute))
            synonyms.append(DescribeConfigsSynonym(name=setting.name, value=text, source=FROM_TOPIC))
        synonym = BROKER_SYNONYMS.get(setting.name)
        if synonym is not None:
            synonyms += _broker_synonyms(broker, synonym)
        yield _entry(setting, getattr(values, setting.attribute), synonyms, read_only=False)
    yield from (_unknown(name, FROM_TOPIC) for name in own if name not in TopicConfig.SETTINGS)


def _group_settings(image: ClusterImage, name: str) -> Mapping[str, str]:
    """Of any group, whether there is one of that name or not."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    return image.configs.get((GROUP_RESOURCE, name), {})


def _all_of_group(broker: BrokerConfig, own: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
    values = resolve_group(own, broker)
    for setting in GroupConfig.SETTINGS.values():
        text = setting.text(getattr(values, setting.attribute))
        synonyms = _broker_synonyms(broker, GROUP_SYNONYMS[setting.name])
        if setting.name in own:
            synonyms = [DescribeConfigsSynonym(name=setting.name, value=text, source=FROM_GROUP), *synonyms]
        yield _entry(setting, getattr(values, setting.attribute), synonyms, read_only=False)
    yield from (_unknown(name, FROM_GROUP) for name in own if name not in GroupConfig.SETTINGS)


def _broker_entries(
    config: BrokerConfig, image: ClusterImage, name: str, facts: Mapping[str, str]
) -> Iterable[DescribeConfigsResourceResult]:
    default = image.configs.get((BROKER_RESOURCE, ""), {})
    if not name:
        return _dynamic_defaults(config, default)
    own = image.configs.get((BROKER_RESOURCE, name), {})
    entries = _all_of_broker(config, default, own)
    return chain((entry for entry in entries if entry.name not in facts), _fact_entries(facts))


def _fact_entries(facts: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
    return (
        DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=True,
            config_source=FROM_DEFAULT,
            config_type=Type.STRING,
            documentation=FACTS[name],
        )
        for name, value in facts.items()
    )


def _check_id(node_id: int, name: str, otherwise: str) -> None:
    """A broker describes itself only."""
    try:
        broker_id = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}{otherwise} but received {name}"
        )


def _logger_entries() -> Iterable[DescribeConfigsResourceResult]:
    return (
        DescribeConfigsResourceResult(name=logger, value=level, config_source=FROM_LOGGER)
        for logger, level in levels().items()
    )


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
            synonyms = [one for one in _broker_synonyms(config, name) if one.source == FROM_ALL_BROKERS]
            yield _entry(setting, text, synonyms, read_only=not setting.dynamic)


def _broker_synonyms(config: BrokerConfig, name: str) -> list[DescribeConfigsSynonym]:
    """Where the broker's setting gets its value from, the one that counts first; from `name` itself on."""
    same = synonyms(name)
    sources = [
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
            sources.append(DescribeConfigsSynonym(name=one, value=text, source=FROM_DEFAULT))
    while sources and sources[0].name != name:
        del sources[0]
    return sources


def _entry(
    setting: Setting, value: Value, known_synonyms: list[DescribeConfigsSynonym], *, read_only: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.text(value),
        read_only=read_only,
        config_source=known_synonyms[0].source if known_synonyms else FROM_DEFAULT,
        synonyms=known_synonyms,
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
