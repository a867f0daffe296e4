"""The settings of a topic: Kafka's names, types and defaults, and Tidelog's own under `tidelog.*`.

What a topic doesn't set itself it takes from the broker (`retention.ms` from `log.retention.ms` and so on);
`resolve_topic` puts both together. Topics that set nothing share one `TopicConfig`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidelog.config.setting import (
    LONG_MAX,
    ConfigError,
    Settings,
    Value,
    boolean,
    double,
    integer,
    long,
    names,
    optional_integer,
    text,
)

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")
DURABILITIES = ("fsync", "os")
STORAGES = ("disk", "memory")
VALIDATIONS = ("batch", "records")

MESSAGE_BYTES_MAX = 10 * 1024 * 1024 + 64 * 1024
"""A value of 10 MiB, and room for the batch's header, the key and the headers."""

HEADERS_MAX = 1_000_000
"""As many as a batch may have records."""
INFLATED_BYTES_MAX = 128 * 1024 * 1024
"""A dozen times the largest batch."""


def gzip_level(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "Value must be between 1 and 9 or equal to -1"


def _throttled(name: str, parts: tuple[str, ...]) -> str | None:
    def is_replica(part: str) -> bool:
        partition, colon, broker = part.partition(":")
        return not part or (bool(colon) and partition.isdigit() and broker.isdigit())

    if "".join(parts) == "*" or all(is_replica(part) for part in parts):
        return None
    return (
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


STORAGE = "tidelog.storage"
"""The one setting of a topic that is decided when it is made, and stays."""


class TopicConfig(Settings):
    """All settings of one topic, each with its value: what the topic sets, or the broker, or the default."""

    cleanup_policy = names(
        ("delete",),
        "What becomes of old segments: deleted by age and size, compacted to each key's last value, both, or kept.",
        one_of=CLEANUP_POLICIES,
    )
    compression_gzip_level = integer(
        -1, "The level of gzip where the broker compresses; -1 is zlib's own choice.", check=gzip_level
    )
    compression_lz4_level = integer(9, "The level of lz4 where the broker compresses.", at_least=1, at_most=17)
    compression_type = text(
        "producer",
        "How batches are kept: as the producer compressed them, or recompressed to the named codec.",
        one_of=COMPRESSION_TYPES,
    )
    compression_zstd_level = integer(3, "The level of zstd where the broker compresses.", at_least=-131072, at_most=22)
    delete_retention_ms = long(86_400_000, "How long a tombstone stays readable in a compacted topic.", at_least=0)
    file_delete_delay_ms = long(60_000, "How long a deleted segment or topic stays on disk, renamed.", at_least=0)
    flush_messages = long(
        LONG_MAX, "Flush the log to disk after this many records; by default `tidelog.durability` decides.", at_least=1
    )
    flush_ms = long(
        LONG_MAX, "Flush the log to disk at least this often; by default `tidelog.durability` decides.", at_least=0
    )
    follower_replication_throttled_replicas = names(
        (),
        "Replicas whose fetching is throttled, as `partition:broker` or `*`.",
        check=lambda parts: _throttled("follower.replication.throttled.replicas", parts),
    )
    index_interval_bytes = integer(4096, "Bytes of records between two entries of the offset index.", at_least=0)
    internal_segment_bytes = optional_integer(
        None, "A segment size without the lower bound of `segment.bytes`, for tests only."
    )
    leader_replication_throttled_replicas = names(
        (),
        "Replicas that the leader serves throttled, as `partition:broker` or `*`.",
        check=lambda parts: _throttled("leader.replication.throttled.replicas", parts),
    )
    local_retention_bytes = long(-2, "Of Kafka's tiered storage.", at_least=-2)
    local_retention_ms = long(-2, "Of Kafka's tiered storage.", at_least=-2)
    max_compaction_lag_ms = long(LONG_MAX, "A record becomes due for compaction at this age at the latest.", at_least=1)
    max_message_bytes = integer(
        MESSAGE_BYTES_MAX,
        "The largest batch that may be appended, in bytes, as the producer compressed it.",
        at_least=0,
    )
    message_timestamp_after_max_ms = long(
        3_600_000, "How far a record's timestamp may lie ahead of the broker's clock.", at_least=0
    )
    message_timestamp_before_max_ms = long(
        LONG_MAX, "How far a record's timestamp may lie behind the broker's clock.", at_least=0
    )
    message_timestamp_type = text(
        "CreateTime",
        "Whether records keep the producer's timestamp or get the time of the append.",
        one_of=TIMESTAMP_TYPES,
    )
    min_cleanable_dirty_ratio = double(
        0.5, "The share of a log that must be uncompacted before compaction starts.", at_least=0, at_most=1
    )
    min_compaction_lag_ms = long(0, "A record isn't compacted away before this age.", at_least=0)
    min_insync_replicas = integer(
        1, "How many replicas must be in sync for a write with acks=all to be taken.", at_least=1
    )
    preallocate = boolean(False, "Reserve a segment's whole size on disk when it is made.")
    remote_log_copy_disable = boolean(False, "Of Kafka's tiered storage.")
    remote_log_delete_on_disable = boolean(False, "Of Kafka's tiered storage.")
    remote_storage_enable = boolean(False, "Of Kafka's tiered storage, which Tidelog doesn't have: `true` is refused.")
    retention_bytes = long(
        -1, "The size at which a partition's oldest segments are deleted; -1 is no limit (but see `tidelog.storage`)."
    )
    retention_ms = long(604_800_000, "The age at which segments are deleted; -1 is never.", at_least=-1)
    segment_bytes = integer(1_073_741_824, "The size at which a new segment is begun.", at_least=1024 * 1024)
    segment_index_bytes = integer(
        10_485_760, "The largest size of a segment's index; when full, a new segment is begun.", at_least=4
    )
    segment_jitter_ms = long(
        0, "Up to this much is taken off `segment.ms` at random, so that segments don't roll all at once.", at_least=0
    )
    segment_ms = long(
        604_800_000, "The age at which a new segment is begun although the old one isn't full.", at_least=1
    )
    tidelog_durability = text(
        "fsync",
        "When a record counts as written: on stable storage (`fsync`), or, as in Kafka, with the system (`os`).",
        one_of=DURABILITIES,
    )
    tidelog_headers_max = integer(
        HEADERS_MAX,
        "The most headers that the records of a batch may have together, where Produce looks into records.",
        at_least=0,
    )
    tidelog_inflated_bytes_max = integer(
        INFLATED_BYTES_MAX,
        "The most bytes that a compressed batch may inflate to, where Produce looks into records.",
        at_least=1024,
    )
    tidelog_storage = text(
        "disk",
        "Where records are kept: on disk, or in memory only, bounded by `retention.bytes` and gone after a restart. It "
        "is decided when the topic is made; the broker's `tidelog.storage` counts where its maker doesn't say.",
        one_of=STORAGES,
    )
    tidelog_validate = text(
        "batch",
        "How deep Produce looks: into the batch's header and checksum, or, as Kafka does, into each record too.",
        one_of=VALIDATIONS,
    )
    unclean_leader_election_enable = boolean(
        False, "Let a replica that may have missed records become leader when no other is left."
    )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The age at which segments roll: what is to be compacted by then must not be in the one that is written."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def segment_size(self) -> int:
        """The size at which segments roll."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes


BROKER_SYNONYMS: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "tidelog.durability": "tidelog.durability",
    "tidelog.headers.max": "tidelog.headers.max",
    "tidelog.inflated.bytes.max": "tidelog.inflated.bytes.max",
    "tidelog.validate": "tidelog.validate",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""The broker's setting that a topic's setting falls back to; Kafka's names differ more than one would like."""


def resolve_topic(overrides: Mapping[str, str], broker: "BrokerConfig") -> TopicConfig:
    """What holds for a topic that sets `overrides`, on a broker with these settings.

    Unknown names among the overrides are passed over, since a cluster's metadata may have been written by a newer
    version or by Apache Kafka; `check_topic` is what refuses them. ConfigError for a value that isn't one.
    """
    if not overrides:
        return broker.topic_defaults
    values: dict[str, Value] = {}
    for name, setting in TopicConfig.SETTINGS.items():
        given = overrides.get(name)
        values[setting.attribute] = (
            getattr(broker.topic_defaults, setting.attribute) if given is None else setting.parse(given)
        )
    return _resolved(values, broker)


def topic_defaults(broker: "BrokerConfig") -> TopicConfig:
    """What holds for a topic that sets nothing."""
    values: dict[str, Value] = {}
    for name, setting in TopicConfig.SETTINGS.items():
        synonym = BROKER_SYNONYMS.get(name)
        values[setting.attribute] = setting.default if synonym is None else broker.in_topic_unit(synonym)
    return _resolved(values, broker)


def _resolved(values: dict[str, Value], broker: "BrokerConfig") -> TopicConfig:
    if values["tidelog_storage"] == "memory" and values["retention_bytes"] == -1:
        values["retention_bytes"] = broker.tidelog_memory_retention_bytes
    return TopicConfig(values)


def new_topic(overrides: Mapping[str, str], broker: "BrokerConfig") -> Mapping[str, str]:
    """What a topic is made with where these overrides are asked for: with where it is kept, if that is no matter of
    course. It is decided here and stays with the topic, whatever the broker's default is later: records can't move.

    A compacted topic is on disk, since those in memory can't be compacted.
    """
    if STORAGE in overrides or broker.tidelog_storage == TopicConfig.SETTINGS[STORAGE].default:
        return overrides
    if resolve_topic(overrides, broker).compacts:
        return overrides
    return {**overrides, STORAGE: broker.tidelog_storage}


def check_topic(overrides: Mapping[str, str], broker: "BrokerConfig") -> TopicConfig:
    """Refuse, with ConfigError, what a client may not set on a topic; else what holds then."""
    for name in overrides:
        if name not in TopicConfig.SETTINGS:
            raise ConfigError(name, f"Unknown topic config name: {name}")
    config = resolve_topic(overrides, broker)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )
    if config.remote_storage_enable:
        raise ConfigError(
            "remote.storage.enable",
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
    if config.tidelog_storage == "memory" and config.compacts:
        raise ConfigError(
            STORAGE,
            "Invalid value memory for configuration tidelog.storage: a compacted topic is kept on disk; "
            "set cleanup.policy=delete to keep a topic in memory",
        )
    return config
