"""AlterPartitionReassignments (key 45): move partitions to other brokers, or stop moving them (KIP-455).

Each partition succeeds or fails by itself; null replicas cancel what is under way. Where the request as a whole can't
be carried out, each partition says so, too. v1 may forbid that the replication factor changes (KIP-860).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.bounded_wait import decide, defaults_of
from tidelog.controller.reassignments import alter_reassignments
from tidelog.env.slices import Steps, mapped, settled
from tidelog.wire.errors import KafkaError
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: AlterPartitionReassignmentsRequest) -> Steps[AlterPartitionReassignmentsResponse]:
    if not request.topics:
        return AlterPartitionReassignmentsResponse()
    defaults = defaults_of(context.services.config)
    decided: Promise[AlterPartitionReassignmentsResponse | KafkaError] = decide(
        context.services,
        lambda image, now_ms: alter_reassignments(image, request, defaults),
        request.timeout_ms,
        lambda error: error,
    )
    answer = yield from settled(decided)
    return (yield from _all_failed(request, answer)) if isinstance(answer, KafkaError) else answer


def _all_failed(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> Steps[AlterPartitionReassignmentsResponse]:
    def failed(partition: ReassignablePartition) -> ReassignablePartitionResponse:
        return ReassignablePartitionResponse(
            partition_index=partition.partition_index, error_code=error.code, error_message=error.message
        )

    topics: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        partitions = yield from mapped(failed, topic.partitions)
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message, responses=topics)
