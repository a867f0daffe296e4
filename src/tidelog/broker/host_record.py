"""The machine that this broker runs on, as the cluster's metadata has it: what placement keeps replicas apart by.

BrokerRegistration has no field for it. So it is a setting of the broker in the metadata, which the broker has written
by the active controller when it is registered and before it is let in: by a request that Apache Kafka's controllers
take too. One that refuses it, or doesn't answer, keeps no broker from its work: that one is taken to be on the host
where it listens, as all are that say nothing. It is said again after a while.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidelog.config.cluster import HOST
from tidelog.env.promise import Promise
from tidelog.metadata.image import BROKER_RESOURCE
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Services

log = logging.getLogger("tidelog.broker")

TIMEOUT_MS = 2_000
AGAIN_S = 30.0
SET, DELETE = 0, 1


def tell_host(services: Services) -> Promise[None]:
    """Have it written, where the metadata has another. Done when that was tried; it never fails."""
    tried: Promise[None] = Promise()
    _tell(services, tried)
    return tried


def _tell(services: Services, tried: Promise[None] | None) -> None:
    wanted = services.config.tidelog_host
    name = str(services.node_id)
    known = services.metadata.image.configs.get((BROKER_RESOURCE, name), {}).get(HOST)
    if known == wanted or services.quorum.stopped:
        _settle(tried)
        return

    def answered(promise: Promise[Any]) -> None:
        why = str(promise.error) if promise.error is not None else _refusal(promise.result())
        if why is not None:
            log.warning("the controller doesn't take %s=%s of this broker, it is asked again: %s", HOST, wanted, why)
            services.env.loop.call_later(AGAIN_S, _tell, services, None)
        _settle(tried)

    change = AlterableConfig(name=HOST, config_operation=SET if wanted else DELETE, value=wanted)
    resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=name, configs=[change])
    services.own_channel.ask(IncrementalAlterConfigsRequest(resources=[resource]), TIMEOUT_MS).on_done(answered)


def _settle(tried: Promise[None] | None) -> None:
    if tried is not None:
        tried.resolve(None)


def _refusal(response: Any) -> str | None:
    return next((one.error_message or f"error {one.error_code}" for one in response.responses if one.error_code), None)
