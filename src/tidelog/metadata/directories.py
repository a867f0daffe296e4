"""Directory ids that name no directory (KIP-858): what Kafka has in the place of one."""

from tidelog.metadata.image import PartitionImage

MIGRATING_DIRECTORY = bytes(16)
"""Nobody knows which one: what Kafka has for replicas that are older than directories' ids."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
"""The broker chooses the directory itself, and says which when it has several."""
LOST_DIRECTORY = bytes(15) + b"\x02"
"""One that failed: the replica isn't there."""


def lost_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Those whose logs failed, or whose directories did."""
    if LOST_DIRECTORY not in partition.directories:
        return ()
    pairs = zip(partition.replicas, partition.directories, strict=True)
    return tuple(replica for replica, directory in pairs if directory == LOST_DIRECTORY)
