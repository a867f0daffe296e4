"""DeleteTopics (key 20): delete topics by name or, from v6 on, by id. Each succeeds or fails by itself.

The records are gone for clients when the answer comes, and gone from disk after `file.delete.delay.ms`. With
`delete.topic.enable=false` nothing is deleted. v4 is flexible, v5 tells messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.bounded_wait import decide
from tidelog.controller.bounds import CHANGES_MAX
from tidelog.controller.topics import delete_topics
from tidelog.env.slices import whole
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps

TOPICS_A_STEP = 256
FIRST_WITH_OWN_ERROR = 3
"""Older clients don't know TOPIC_DELETION_DISABLED."""


def handle(
    context: Context, request: DeleteTopicsRequest
) -> Steps[DeleteTopicsResponse | Promise[DeleteTopicsResponse]]:
    named = len(request.topic_names) + len(request.topics)
    if named > CHANGES_MAX:
        error = KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{named} topics in one request; {CHANGES_MAX} are allowed: send several"
        )
        return (yield from _all_failed(request, error))
    if not context.services.config.delete_topic_enable:
        code = (
            ErrorCode.TOPIC_DELETION_DISABLED if context.version >= FIRST_WITH_OWN_ERROR else ErrorCode.INVALID_REQUEST
        )
        return (yield from _all_failed(request, KafkaError(code)))
    return decide(
        context.services,
        lambda image, now_ms: delete_topics(image, request),
        request.timeout_ms,
        lambda error: whole(_all_failed(request, error)),
    )


def _all_failed(request: DeleteTopicsRequest, error: KafkaError) -> Steps[DeleteTopicsResponse]:
    asked = [(name, ZERO_UUID) for name in request.topic_names] + [
        (topic.name, topic.topic_id) for topic in request.topics
    ]
    results: list[DeletableTopicResult] = []
    for name, topic_id in asked:
        results.append(
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
        )
        if not len(results) % TOPICS_A_STEP:
            yield
    return DeleteTopicsResponse(responses=results)
