"""Where the leader is now (KIP-951): told with an error, so that a client needn't ask for metadata first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.replica.partition import Partition

T = TypeVar("T")


def hint_at_leader(make: Callable[..., T], partition: Partition) -> T:
    """The partition's leader and epoch, in the message's own type."""
    return make(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def node_endpoints(make: Callable[..., T], context: Context) -> list[T]:
    """The brokers that a hint may name, as seen from the listener that was asked."""
    return [
        make(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker in context.services.metadata.image.brokers.values()
        for endpoint in broker.endpoints
        if endpoint.name == context.listener
    ]
