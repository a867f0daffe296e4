"""BrokerHeartbeat (key 63): a broker is alive, and wants in, out, or to stop.

That it was heard counts at once, whatever becomes of the rest: a metadata log that is slow fences nobody. An old
incarnation isn't heard, and who fell silent again before it was let in stays out. The answer comes within half of
`broker.heartbeat.interval.ms`, as Kafka's, or is REQUEST_TIMED_OUT: the broker asks again.

v1 tells directories that went offline (KIP-858), v2 those that are cordoned (KIP-1066).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.bounded_wait import decide
from tidelog.controller.heartbeat import Heartbeat, check_sender, heartbeat
from tidelog.env.promise import Promise
from tidelog.machine.decision import Decision
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.controller.heartbeat import HeartbeatAnswer
    from tidelog.env.slices import Steps
    from tidelog.metadata.image import ClusterImage
    from tidelog.wire.records.metadata import Record


def handle(context: Context, request: BrokerHeartbeatRequest) -> Promise[BrokerHeartbeatResponse]:
    services, controller = context.services, context.services.controller
    live = controller.liveness
    given = Heartbeat(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        metadata_offset=request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shutdown=request.want_shut_down,
        offline_log_dirs=tuple(request.offline_log_dirs),
        cordoned_log_dirs=None if request.cordoned_log_dirs is None else tuple(request.cordoned_log_dirs),
    )
    try:
        controller.check_active()
        check_sender(controller.machine.newest, given.broker_id, given.broker_epoch)
    except KafkaError as error:
        return Promise[BrokerHeartbeatResponse].resolved(_refused(error))
    live.heard(given.broker_id, given.broker_epoch, given.metadata_offset, context.connection_id)

    def answer(image: ClusterImage, now_ms: int) -> Steps[Decision[Record, BrokerHeartbeatResponse]]:
        broker = check_sender(image, given.broker_id, given.broker_epoch)
        if broker.fenced and not live.is_alive(broker.id, broker.epoch):  # nobody would fence it again
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"broker {broker.id} fell silent before it was let in")
        moved = live.moved_by(broker.id, image.offset) if broker.in_controlled_shutdown else None
        lowest = live.lowest_metadata_offset(image)
        records, decided = yield from heartbeat(image, given, controller.defaults, lowest, moved)
        return Decision(records, _response(decided))

    timeout_ms = max(1, services.config.broker_heartbeat_interval_ms // 2)
    response = decide(services, answer, timeout_ms, _refused, to_its_end=True)
    response.on_done(lambda promise: _leaves(context, given, promise))
    return response


def _leaves(context: Context, given: Heartbeat, promise: Promise[BrokerHeartbeatResponse]) -> None:
    """A broker that may stop has no session any more: it may come back at once."""
    if promise.error is None and promise.result().should_shut_down:
        context.services.controller.liveness.forget(given.broker_id)


def _response(decided: HeartbeatAnswer) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(
        is_caught_up=decided.is_caught_up, is_fenced=decided.is_fenced, should_shut_down=decided.should_shut_down
    )


def _refused(error: KafkaError) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=error.code)
