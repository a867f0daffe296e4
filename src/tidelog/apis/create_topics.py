"""CreateTopics (key 19): make topics. Each succeeds or fails by itself; those that succeed are one change.

-1 partitions or replicas means the broker's default; `validate_only` checks everything and makes nothing. The answer
comes when the topics can be used. v5 tells the settings that the topics have, v7 their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from tidelog.apis.describe_configs import FROM_TOPIC, topic_entries
from tidelog.apis.shared.bounded_wait import decide, defaults_of
from tidelog.config.setting import ConfigError
from tidelog.config.topic import STORAGE, TopicConfig, check_topic, new_topic, resolve_topic
from tidelog.controller.bounds import CHANGES_MAX
from tidelog.controller.configs import check_sizes
from tidelog.controller.names import INTERNAL_TOPICS
from tidelog.controller.topics import create_topics
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context, Services
    from tidelog.config.broker import BrokerConfig
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps

FIRST_WITH_SETTINGS = 5
TOPICS_A_STEP = 256


def handle(
    context: Context, request: CreateTopicsRequest
) -> Steps[CreateTopicsResponse | Promise[CreateTopicsResponse]]:
    if len(request.topics) > CHANGES_MAX:
        return (yield from _too_many(request))
    return _make_here(context.services, request, described=context.version >= FIRST_WITH_SETTINGS)


def _too_many(request: CreateTopicsRequest) -> Steps[CreateTopicsResponse]:
    """As where they would have too many partitions, but told in steps."""
    message = f"{len(request.topics)} topics in one request; {CHANGES_MAX} are allowed"
    results: list[CreatableTopicResult] = []
    for topic in request.topics:
        results.append(
            CreatableTopicResult(name=topic.name, error_code=ErrorCode.POLICY_VIOLATION, error_message=message)
        )
        if not len(results) % TOPICS_A_STEP:
            yield
    return CreateTopicsResponse(topics=results)


def make_topics(services: Services, request: CreateTopicsRequest) -> Promise[CreateTopicsResponse]:
    """Topics that are made because someone asked for them in another way, wherever the active controller is."""
    if not services.channel.is_here:
        return services.channel.ask(request, request.timeout_ms).then(partial(_made_elsewhere, request))
    return _make_here(services, request, described=False)


def _make_here(services: Services, request: CreateTopicsRequest, *, described: bool) -> Promise[CreateTopicsResponse]:
    """NOT_CONTROLLER where another node decides. `described`: with their settings."""
    config = services.config
    describe = Description(config) if described else None

    def complete_configs(topic: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
        if not overrides and config.tidelog_storage == "disk":
            return overrides
        check_sizes(overrides.values())
        internal = topic in INTERNAL_TOPICS
        try:
            if internal and check_topic(overrides, config).tidelog_storage == "memory":
                raise ConfigError(STORAGE, f"The internal topic {topic} is kept on disk: it must outlive the broker")
            complete = overrides if internal else new_topic(overrides, config)
            check_topic(complete, config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error
        return complete

    def describe_configs(overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        return [] if describe is None else describe.of(overrides)

    return decide(
        services,
        lambda image, now_ms: create_topics(
            image, request, services.env.random.uuid, defaults_of(config), complete_configs, describe_configs
        ),
        request.timeout_ms,
        partial(_all_failed, request),
    )


def _made_elsewhere(request: CreateTopicsRequest, promise: Promise[CreateTopicsResponse]) -> CreateTopicsResponse:
    if isinstance(promise.error, KafkaError):
        return _all_failed(request, promise.error)
    return promise.result()


def _all_failed(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )


class Description:
    """The settings of new topics, as CreateTopics tells them. What a topic leaves as it is, it has from one that sets
    nothing: so that telling it of thousands costs little more than of one."""

    __slots__ = ("_broker", "_defaults", "_shown")

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker
        self._defaults = resolve_topic({}, broker)
        entries = {entry.name: entry for entry in topic_entries({}, broker)}
        self._shown = {
            name: CreatableTopicConfigs(name=name, value=entry.value, config_source=entry.config_source)
            for name, entry in entries.items()
        }

    def of(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Every setting of a topic that sets `overrides`, which must be such as a topic may have."""
        if not overrides:
            return list(self._shown.values())
        values, defaults, shown = resolve_topic(overrides, self._broker), self._defaults, self._shown
        configs: list[CreatableTopicConfigs] = []
        for name, setting in TopicConfig.SETTINGS.items():
            entry = shown.get(name)
            if name in overrides:
                entry = CreatableTopicConfigs(name=name, value=overrides[name], config_source=FROM_TOPIC)
            elif entry is not None:
                value = getattr(values, setting.attribute)
                if value != getattr(defaults, setting.attribute):  # it follows from another one
                    entry = CreatableTopicConfigs(
                        name=name, value=setting.text(value), config_source=entry.config_source
                    )
            if entry is not None:
                configs.append(entry)
        return configs
