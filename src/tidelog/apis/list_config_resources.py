"""ListConfigResources (key 74): everything that can have settings.

v0 lists client metrics subscriptions, of which Tidelog has none. v1 takes types of resources (none: all) and lists
topics, brokers, brokers' loggers, and groups that have settings of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.nodes import brokers_on
from tidelog.config.group import GROUP_RESOURCE
from tidelog.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
TYPES = (
    GROUP_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
)


def handle(context: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    image = context.services.metadata.image
    allowed = TYPES if context.version >= 1 else (CLIENT_METRICS_RESOURCE,)
    asked = request.resource_types or list(allowed)
    if any(kind not in allowed for kind in asked):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources: list[ConfigResource] = []
    for kind in TYPES:
        if kind not in asked:
            continue
        if kind == TOPIC_RESOURCE:
            names = list(image.topics)
        elif kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
            names = [str(broker.id) for broker, _ in brokers_on(image, context.listener, fenced=True)]
        else:
            names = [name for resource_type, name in image.configs if resource_type == kind]
        resources += [ConfigResource(resource_name=name, resource_type=kind) for name in names]
    return ListConfigResourcesResponse(config_resources=resources)
