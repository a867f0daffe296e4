"""CreatePartitions (key 37): give topics more partitions. Each succeeds or fails by itself.

`validate_only` only checks. v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.bounded_wait import decide
from tidelog.controller.bounds import CHANGES_MAX
from tidelog.controller.topics import create_partitions
from tidelog.env.slices import whole
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps

TOPICS_A_STEP = 256


def handle(
    context: Context, request: CreatePartitionsRequest
) -> Steps[CreatePartitionsResponse | Promise[CreatePartitionsResponse]]:
    if len(request.topics) > CHANGES_MAX:
        message = f"{len(request.topics)} topics in one request; {CHANGES_MAX} are allowed"
        return (yield from _all_failed(request, KafkaError(ErrorCode.POLICY_VIOLATION, message)))
    return decide(
        context.services,
        lambda image, now_ms: create_partitions(image, request),
        request.timeout_ms,
        lambda error: whole(_all_failed(request, error)),
    )


def _all_failed(request: CreatePartitionsRequest, error: KafkaError) -> Steps[CreatePartitionsResponse]:
    results: list[CreatePartitionsTopicResult] = []
    for topic in request.topics:
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message))
        if not len(results) % TOPICS_A_STEP:
            yield
    return CreatePartitionsResponse(results=results)
