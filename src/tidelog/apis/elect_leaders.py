"""ElectLeaders (key 43): make the preferred replica the leader, or, uncleanly, any that is there.

Null means every partition, and then those that need no election aren't told. v1 knows unclean elections
(type 1) and an error for the request as a whole, v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.bounded_wait import decide, defaults_of
from tidelog.controller.elections import elect_leaders
from tidelog.env.slices import Steps, mapped, settled
from tidelog.wire.errors import KafkaError
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    decided: Promise[ElectLeadersResponse | KafkaError] = decide(
        context.services,
        lambda image, now_ms: elect_leaders(image, request, defaults_of(context.services.config)),
        request.timeout_ms,
        lambda error: error,
    )
    answer = yield from settled(decided)
    return (yield from _all_failed(context, request, answer)) if isinstance(answer, KafkaError) else answer


def _all_failed(context: Context, request: ElectLeadersRequest, error: KafkaError) -> Steps[ElectLeadersResponse]:
    def failed(index: int) -> PartitionResult:
        return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)

    results: list[ReplicaElectionResult] = []
    for topic in request.topic_partitions or ():
        partitions = yield from mapped(failed, topic.partitions)
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=partitions))
    return ElectLeadersResponse(error_code=error.code if context.version >= 1 else 0, replica_election_results=results)
