"""AssignReplicasToDirs (key 73): a broker says in which of its directories its replicas are (KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.decision_answer import decided
from tidelog.controller.replica_directories import assign_replicas
from tidelog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: AssignReplicasToDirsRequest) -> Promise[AssignReplicasToDirsResponse]:
    controller = context.services.controller
    return decided(
        controller.submit_steps(lambda image, now_ms: assign_replicas(image, request, controller.defaults)),
        lambda response: response,
        lambda error: AssignReplicasToDirsResponse(error_code=error.code),
    )
