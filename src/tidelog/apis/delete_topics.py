"""DeleteTopics (key 20): delete topics by name or, from v6 on, by id. Each succeeds or fails by itself.

The records are gone for clients when the answer comes, and gone from disk after `file.delete.delay.ms`. With
`delete.topic.enable=false` nothing is deleted. v4 is flexible, v5 tells messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.waiting import decide
from tidelog.controller.topics import delete_topics
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.env.promise import Promise

FIRST_WITH_OWN_ERROR = 3
"""Older clients don't know TOPIC_DELETION_DISABLED."""


def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse | Promise[DeleteTopicsResponse]:
    if not context.services.config.delete_topic_enable:
        code = (
            ErrorCode.TOPIC_DELETION_DISABLED if context.version >= FIRST_WITH_OWN_ERROR else ErrorCode.INVALID_REQUEST
        )
        return _all_failed(request, KafkaError(code))
    return decide(
        context.services,
        lambda image, now_ms: delete_topics(image, request),
        request.timeout_ms,
        lambda error: _all_failed(request, error),
    )


def _all_failed(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    by_name = [DeletableTopicResult(name=name, error_code=error.code) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=by_name
        + [
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error.code)
            for topic in request.topics
        ]
    )
