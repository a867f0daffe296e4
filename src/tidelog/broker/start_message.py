"""What a node's log says when it serves: who it is, where, what is known of its last stop, and of its vote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire.uuids import uuid_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.apis.shared.context import Endpoint, Services
    from tidelog.config.broker import BrokerConfig


def start_message(services: Services, addresses: Mapping[str, Endpoint]) -> str:
    where = ", ".join(f"{one.name}://{one.host}:{one.port}" for one in addresses.values())
    role = "broker" if services.config.is_broker else "controller"
    line = f"{role} {services.node_id} of cluster {services.cluster_id} serves on {where}"
    return f"{line}; {_last_stop(services)}" if services.config.is_broker else line


def _last_stop(services: Services) -> str:
    recoveries = services.store.recoveries
    if not recoveries.unopened:
        return "there are no records yet"
    if recoveries.clean:
        return "the last stop was clean"
    return f"the last stop was not clean: {recoveries.unopened:,} partitions are checked when they are opened"


def missing_vote(services: Services) -> str | None:
    """What whoever started a controller has to know, if it isn't one of the voters."""
    driver, own = services.quorum, services.quorum.local.key
    known = driver.voters.get(own.id)
    if not services.config.is_controller or driver.kraft_version < 1 or (known is not None and known.key == own):
        return None
    why = "it is none of the voters yet"
    if known is not None:
        why = (
            f"node {own.id} is a voter with the directory {uuid_text(known.key.directory_id)}, and here it is "
            f"{uuid_text(own.directory_id)}: another disk"
        )
    if services.config.controller_quorum_auto_join_enable:
        return f"controller {own.id} has no vote, and asks for one: {why}"
    return (
        f"controller {own.id} has no vote: {why}. It follows, and decides nothing; to have it join, set "
        "controller.quorum.auto.join.enable=true, or use kafka-metadata-quorum add-controller"
    )


def nobody_to_join(config: BrokerConfig) -> str | None:
    """A controller that is to join others by itself, and is told of none: on an empty folder it is a cluster of its
    own."""
    if not config.controller_quorum_auto_join_enable or config.other_controllers:
        return None
    return (
        f"controller {config.node_id} is to join by itself (controller.quorum.auto.join.enable), but is told of no "
        "other controller: name some in controller.quorum.bootstrap.servers; until then it stays in the cluster that "
        "its folder is of"
    )
