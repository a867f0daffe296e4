"""OffsetDelete (key 47): forget committed offsets of topics that no member of the group reads (KIP-496).

An error of the group fails the request as a whole; topics in use, or not there, are told partition by partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.removal import delete_offsets
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context


def handle(context: Context, request: OffsetDeleteRequest) -> Promise[OffsetDeleteResponse]:
    image = context.services.metadata.image
    response = OffsetDeleteResponse()
    wanted: list[tuple[str, int]] = []
    waiting: list[OffsetDeleteResponsePartition] = []
    for topic in request.topics:
        answers: list[OffsetDeleteResponsePartition] = []
        for partition in topic.partitions:
            answer = OffsetDeleteResponsePartition(partition_index=partition.partition_index)
            answers.append(answer)
            if image.partition(topic.name, partition.partition_index) is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append((topic.name, partition.partition_index))
                waiting.append(answer)
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))

    def told(promise: Promise[list[ErrorCode]]) -> OffsetDeleteResponse:
        error = promise.error
        if isinstance(error, KafkaError):
            return OffsetDeleteResponse(error_code=error.code)
        for answer, code in zip(waiting, promise.result(), strict=True):
            answer.error_code = code
        return response

    try:
        deleted = delete_offsets(context.services.groups, request.group_id, wanted)
    except KafkaError as error:
        deleted = Promise[list[ErrorCode]].failed(error)
    return deleted.then(told)
