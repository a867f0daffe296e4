"""CreateTopics (key 19): make topics. Each succeeds or fails by itself; those that succeed are one change.

-1 partitions or replicas means the broker's default; `validate_only` checks everything and makes nothing. The answer
comes when the topics can be used. v5 tells the settings that the topics have, v7 their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.apis.describe_configs import topic_entries
from tidelog.apis.waiting import decide, defaults_of
from tidelog.config.setting import ConfigError
from tidelog.config.topic import check_topic
from tidelog.controller.configs import check_sizes
from tidelog.controller.topics import create_topics
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context, Services
    from tidelog.env.promise import Promise


def handle(context: Context, request: CreateTopicsRequest) -> Promise[CreateTopicsResponse]:
    return make_topics(context.services, request)


def make_topics(services: Services, request: CreateTopicsRequest) -> Promise[CreateTopicsResponse]:
    """Also for topics that are made because someone asked for them in another way."""
    config = services.config

    def check_configs(topic: str, overrides: Mapping[str, str]) -> None:
        check_sizes(overrides.values())
        try:
            check_topic(overrides, config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error

    def describe_configs(overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(
                name=entry.name, value=overrides.get(entry.name, entry.value), config_source=entry.config_source
            )
            for entry in topic_entries(overrides, config)
        ]

    return decide(
        services,
        lambda image, now_ms: create_topics(
            image, request, services.env.random.uuid, defaults_of(config), check_configs, describe_configs
        ),
        request.timeout_ms,
        lambda error: CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
                for topic in request.topics
            ]
        ),
    )
