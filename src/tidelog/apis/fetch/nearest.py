"""Which replica a consumer had better read from: one in its own rack (KIP-392), if the leader is in another.

A follower serves consumers that name a rack, up to the high watermark that it knows; who names none came to the wrong
broker, and is told which one leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.metadata.image import ClusterImage
    from tidelog.replica.partition import Partition

LEADER = -1


def nearest_replica(partition: Partition, offset: int, rack: str, image: ClusterImage, listener: str) -> int:
    """The id of an in-sync replica in the rack that has the offset, the one that is furthest; -1: the leader."""
    leading = partition.leading
    leader = image.brokers.get(partition.leader)
    if leading is None or (leader is not None and leader.rack == rack):
        return LEADER
    best = LEADER, 0
    for id, follower in leading.followers.items():
        broker = image.brokers.get(id)
        if (
            broker is not None
            and broker.rack == rack
            and not broker.fenced
            and id in leading.isr
            and 0 <= follower.log_start <= offset <= follower.end
            and any(endpoint.name == listener for endpoint in broker.endpoints)
            and (best[0] == LEADER or follower.end > best[1])
        ):
            best = id, follower.end
    return best[0]
