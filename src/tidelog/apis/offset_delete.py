"""OffsetDelete (key 47): forget committed offsets of topics that no member of the group reads (KIP-496).

An error of the group fails the request as a whole; topics in use, or not there, are told partition by partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.removal import delete_offsets
from tidelog.env.slices import CHEAP_A_STEP, Steps
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context


def handle(context: Context, request: OffsetDeleteRequest) -> Steps[OffsetDeleteResponse]:
    image = context.services.metadata.image
    response = OffsetDeleteResponse()
    wanted: list[TopicPartition] = []
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
            yield
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        yield
    try:
        codes = yield from delete_offsets(context.services.groups, request.group_id, wanted)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    for place, (answer, code) in enumerate(zip(waiting, codes, strict=True), 1):
        answer.error_code = code
        if not place % CHEAP_A_STEP:
            yield
    return response
