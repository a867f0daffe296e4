"""BrokerRegistration (key 62): a broker joins the cluster, fenced, and gets its epoch.

A second request of the same incarnation gets the same epoch. Another incarnation of an id whose last one still has a
session is told DUPLICATE_BROKER_REGISTRATION, and tries again until that one is fenced: half a second after a kill -9,
or three where the controllers were killed with it.
A broker without log directories (v0, v1) can't join a cluster whose metadata.version knows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.decision_answer import decided
from tidelog.controller import brokers
from tidelog.controller.heartbeats import LOCAL
from tidelog.metadata.image import EndpointImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps
    from tidelog.machine.decision import Decision
    from tidelog.metadata.image import ClusterImage
    from tidelog.wire.records.metadata import Record


def handle(context: Context, request: BrokerRegistrationRequest) -> Promise[BrokerRegistrationResponse]:
    services, controller = context.services, context.services.controller
    connection = context.connection_id
    registration = brokers.Registration(
        broker_id=request.broker_id,
        cluster_id=request.cluster_id,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(EndpointImage(e.name, e.host, e.port, e.security_protocol) for e in request.listeners),
        features={f.name: (f.min_supported_version, f.max_supported_version) for f in request.features},
        log_dirs=tuple(request.log_dirs),
        rack=request.rack,
        previous_epoch=request.previous_broker_epoch,
        lost_given_up=connection == LOCAL and bool(services.config.tidelog_log_dirs_lost),
    )

    def decide(image: ClusterImage, now_ms: int) -> Steps[Decision[Record, int]]:
        if request.is_migrating_zk_broker:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "brokers of ZooKeeper can't be registered")
        alive = controller.liveness.has_session(registration.broker_id, connection)
        return (
            yield from brokers.register(
                image, registration, services.cluster_id, controller.defaults, has_session=alive
            )
        )

    def registered(epoch: int) -> BrokerRegistrationResponse:
        controller.liveness.registered(registration.broker_id, epoch)
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def refused(error: KafkaError) -> BrokerRegistrationResponse:
        if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            controller.liveness.claimed(registration.broker_id)
        return BrokerRegistrationResponse(error_code=error.code)

    return decided(controller.submit_steps(decide), registered, refused)
