"""AlterPartition (key 56): the leader of a partition asks the controller for another ISR.

Each partition is answered for itself; the answer tells the state that was decided, which the leader may use at once.
v2 names topics by id, v3 the replicas with the epochs of their brokers (KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.decision_answer import decided
from tidelog.controller.in_sync import alter_partition
from tidelog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: AlterPartitionRequest) -> Promise[AlterPartitionResponse]:
    controller = context.services.controller
    return decided(
        controller.submit_steps(
            lambda image, now_ms: alter_partition(image, request, context.version, controller.defaults)
        ),
        lambda response: response,
        lambda error: AlterPartitionResponse(error_code=error.code),
    )
