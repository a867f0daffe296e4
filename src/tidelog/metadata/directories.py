"""Directory ids that name no directory (KIP-858): what Kafka has in the place of one."""

MIGRATING_DIRECTORY = bytes(16)
"""Nobody knows which one: what Kafka has for replicas that are older than directories' ids."""
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
"""The broker chooses the directory itself, and says which when it has several."""
LOST_DIRECTORY = bytes(15) + b"\x02"
"""One that failed: the replica isn't there."""
