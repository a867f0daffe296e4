"""What a broker says of itself when it registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.metadata.versions import SUPPORTED
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.apis.shared.context import Endpoint, Services


def registration_request(
    services: Services,
    incarnation_id: bytes,
    endpoints: Iterable[Endpoint],
    directories: Sequence[bytes],
    previous_epoch: int,
) -> BrokerRegistrationRequest:
    """`previous_epoch`: that of the former self whose replicas are all here (past.py), or -1."""
    return BrokerRegistrationRequest(
        broker_id=services.node_id,
        cluster_id=services.cluster_id,
        incarnation_id=incarnation_id,
        listeners=[
            Listener(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in endpoints
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED.items()
        ],
        rack=services.config.broker_rack,
        log_dirs=list(directories),
        previous_broker_epoch=previous_epoch,
    )
