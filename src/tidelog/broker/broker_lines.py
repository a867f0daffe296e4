"""Who comes to the cluster and who goes, for whoever reads a node's log: a line for each broker that is registered, let
in, about to stop, fenced or gone.

The active controller says where a broker is and in which epoch; other nodes say the rest. What a node itself goes
through its own lines tell.
"""

import logging
from collections.abc import Callable

from tidelog.metadata.follow import ChangedTopics
from tidelog.metadata.image import BrokerImage, ClusterImage

_logger = logging.getLogger(__name__)


class BrokerLines:
    """A subscriber of the metadata, of a node that knows what was committed before it came."""

    def __init__(self, node_id: int, is_active: Callable[[], bool]) -> None:
        self._node_id = node_id
        self._is_active = is_active

    def look(
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed: set[tuple[int, str]]
    ) -> None:
        if old.brokers is new.brokers:
            return
        for id in sorted({*old.brokers, *new.brokers} - {self._node_id}):
            before, after = old.brokers.get(id), new.brokers.get(id)
            if before is not after:
                for what in happened(before, after, in_full=self._is_active()):
                    _logger.info("broker %d %s", id, what)


def happened(before: BrokerImage | None, after: BrokerImage | None, *, in_full: bool) -> list[str]:
    """What became of a broker, in the order in which it did. `in_full`: also where it is, and its epoch."""
    if after is None:
        return ["is no longer registered"]
    said: list[str] = []
    if before is None or before.epoch != after.epoch:
        at = ", ".join(f"{one.host}:{one.port}" for one in after.endpoints)
        said.append(f"is registered at {at}, in epoch {after.epoch}" if in_full else "is registered")
        before = None
    was_in = before is not None and not before.fenced
    if was_in and after.fenced:
        said.append("is fenced: it leads nothing until it is let in again")
    elif not was_in and not after.fenced:
        said.append("is let in")
    if after.in_controlled_shutdown and not after.fenced and not (before is not None and before.in_controlled_shutdown):
        said.append("wants to stop: others lead what it led")
    return said
