"""ElectLeaders (key 43): make the preferred replica the leader, or, uncleanly, any that is there.

Null means every partition, and then those that need no election aren't told. v1 knows unclean elections
(type 1) and an error for the request as a whole, v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.waiting import decide, defaults_of
from tidelog.controller.elections import elect_leaders
from tidelog.wire.errors import KafkaError
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse | Promise[ElectLeadersResponse]:
    def failed(error: KafkaError) -> ElectLeadersResponse:
        return ElectLeadersResponse(
            error_code=error.code if context.version >= 1 else 0,
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic.topic,
                    partition_result=[
                        PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                        for index in topic.partitions
                    ],
                )
                for topic in request.topic_partitions or ()
            ],
        )

    if request.topic_partitions == []:
        return ElectLeadersResponse()
    return decide(
        context.services,
        lambda image, now_ms: elect_leaders(image, request, defaults_of(context.services.config)),
        request.timeout_ms,
        failed,
    )
