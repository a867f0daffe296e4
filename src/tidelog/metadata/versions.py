"""Feature levels, and the version of each record that a `metadata.version` allows: what is written must be readable by
every Kafka that runs at that level. Names and levels are Kafka's."""

from tidelog.wire.records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
)

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
TRANSACTION_VERSION = "transaction.version"

# Levels of metadata.version at which something was introduced.
MV_3_3_IV3 = 7
MV_3_4_IV0 = 8
MV_3_6_IV0 = 12  # an ISR that shrinks needs no new leader epoch
MV_3_6_IV1 = 13  # metadata transactions
MV_3_7_IV0 = 15  # controllers register
MV_3_7_IV2 = 17  # directories
MV_4_0_IV1 = 23  # eligible leader replicas
MV_4_3_IV0 = 30  # cordoned directories

MV_NAMES: dict[int, str] = {
    7: "3.3-IV3", 8: "3.4-IV0", 9: "3.5-IV0", 10: "3.5-IV1", 11: "3.5-IV2", 12: "3.6-IV0", 13: "3.6-IV1",
    14: "3.6-IV2", 15: "3.7-IV0", 16: "3.7-IV1", 17: "3.7-IV2", 18: "3.7-IV3", 19: "3.7-IV4", 20: "3.8-IV0",
    21: "3.9-IV0", 22: "4.0-IV0", 23: "4.0-IV1", 24: "4.0-IV2", 25: "4.0-IV3", 26: "4.1-IV0", 27: "4.1-IV1",
    28: "4.2-IV0", 29: "4.2-IV1", 30: "4.3-IV0",
}  # fmt: skip

SUPPORTED: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (MV_3_3_IV3, MV_4_3_IV0),
    KRAFT_VERSION: (0, 1),
    ELR_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    SHARE_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""What this broker can run at, by feature."""

DEFAULT_LEVELS: dict[str, int] = {
    METADATA_VERSION: MV_4_3_IV0,
    ELR_VERSION: 1,
    GROUP_VERSION: 1,
    SHARE_VERSION: 1,
    STREAMS_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
"""What a new cluster starts with, in the order in which Kafka's `format` writes them."""


def record_version(record: Record, metadata_version: int) -> int:
    """The version in which to write a record at this level of `metadata.version`."""
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        return 2 if metadata_version >= MV_4_0_IV1 else 1 if metadata_version >= MV_3_7_IV2 else 0
    if isinstance(record, RegisterBrokerRecord):
        if metadata_version >= MV_4_3_IV0:
            return 4
        return 3 if metadata_version >= MV_3_7_IV2 else 2 if metadata_version >= MV_3_4_IV0 else 1
    if isinstance(record, BrokerRegistrationChangeRecord):  # the lowest that can say what changed
        if record.cordoned_log_dirs is not None:
            return 3
        return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
    return 0
