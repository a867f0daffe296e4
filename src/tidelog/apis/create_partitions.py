"""CreatePartitions (key 37): give topics more partitions. Each succeeds or fails by itself.

`validate_only` only checks. v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.waiting import decide
from tidelog.controller.topics import create_partitions
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: CreatePartitionsRequest) -> Promise[CreatePartitionsResponse]:
    return decide(
        context.services,
        lambda image, now_ms: create_partitions(image, request),
        request.timeout_ms,
        lambda error: CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
                for topic in request.topics
            ]
        ),
    )
