"""Settings of a broker's storage: folders, segments, retention, flushing, compaction, and what topics fall back to."""

from tidelog.config.setting import (
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    Settings,
    boolean,
    double,
    integer,
    long,
    names,
    optional_integer,
    optional_long,
    optional_names,
    text,
)
from tidelog.config.topic import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    DURABILITIES,
    HEADERS_MAX,
    INFLATED_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    STORAGES,
    TIMESTAMP_TYPES,
    VALIDATIONS,
    gzip_level,
)


class FolderSettings(Settings):
    """Where the data lies, and how it is looked after."""

    log_cleaner_enable = boolean(True, "Compact topics whose `cleanup.policy` asks for it; without it they only grow.")
    log_cleaner_threads = integer(
        1, "How many logs are compacted at once, each in a child process of its own.", at_least=0
    )
    log_cleaner_backoff_ms = long(15_000, "How long to wait when no log is due for compaction.", at_least=0)
    log_cleaner_dedupe_buffer_size = long(
        134_217_728,
        "Memory for the keys of what is compacted, of all child processes together, at about 200 bytes a key; a log "
        "with more keys is compacted in several passes.",
    )
    log_cleaner_io_buffer_load_factor = double(0.9, "How full the memory for keys may become.", at_least=0, at_most=1)
    log_cleaner_io_buffer_size = integer(
        524_288,
        "How much is read at a time, by all child processes together; a larger batch is read whole.",
        at_least=0,
    )
    log_cleaner_io_max_bytes_per_second = double(
        DOUBLE_MAX, "Compaction reads and writes no more than this a second.", at_least=0, at_most=DOUBLE_MAX
    )
    log_dir = names(("data",), "The folder of the data, where `log.dirs` isn't set.", filled=True)
    log_dirs = optional_names("The folders of the data; partitions are spread over them.")
    log_flush_offset_checkpoint_interval_ms = integer(
        60_000, "How often the recovery points are written down.", at_least=0
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        60_000, "How often the starts of the logs are written down.", at_least=0
    )
    log_initial_task_delay_ms = long(30_000, "How long after the start retention and checkpoints begin.", at_least=0)
    log_retention_check_interval_ms = long(300_000, "How often retention looks for segments to delete.", at_least=1)
    num_recovery_threads_per_data_dir = integer(
        2, "How many threads of a folder check segments at start after a crash.", at_least=1, dynamic=True
    )
    background_threads = integer(
        10,
        "How many threads do what would block the loop.",
        at_least=1,
        dynamic=True,
    )
    tidelog_log_dirs_lost = names(
        (),
        "The ids of data folders (`directory.id` in their `meta.properties`) that are gone for good: the broker starts "
        "without them, and partitions that were in them begin anew. It need be set for one start only.",
    )
    tidelog_open_files_max = integer(
        2048, "How many segment files are kept open at once; the least used are closed.", at_least=16, at_most=INT_MAX
    )
    tidelog_journal_bytes = integer(
        64 * 1024 * 1024,
        "The size of the journal in each data folder, by which small commits of many partitions become durable with "
        "one write. It is made when records are first to be durable. 0: there is none, and partitions are synced.",
        at_least=0,
        at_most=INT_MAX,
    )
    tidelog_memory_retention_bytes = long(
        64 * 1024 * 1024,
        "`retention.bytes` of a partition that is kept in memory and whose topic sets no other.",
        at_least=1024,
        dynamic=True,
    )


class LogSettings(Settings):
    """What topics fall back to, in Kafka's names for the broker's side."""

    compression_gzip_level = integer(
        -1, "The default of the topics' `compression.gzip.level`.", check=gzip_level, dynamic=True
    )
    compression_lz4_level = integer(
        9, "The default of the topics' `compression.lz4.level`.", at_least=1, at_most=17, dynamic=True
    )
    compression_type = text(
        "producer", "The default of the topics' `compression.type`.", one_of=COMPRESSION_TYPES, dynamic=True
    )
    compression_zstd_level = integer(
        3, "The default of the topics' `compression.zstd.level`.", at_least=-131072, at_most=22, dynamic=True
    )
    log_cleaner_delete_retention_ms = long(
        86_400_000, "The default of the topics' `delete.retention.ms`.", at_least=0, dynamic=True
    )
    log_cleaner_max_compaction_lag_ms = long(
        LONG_MAX, "The default of the topics' `max.compaction.lag.ms`.", at_least=1, dynamic=True
    )
    log_cleaner_min_cleanable_ratio = double(
        0.5, "The default of the topics' `min.cleanable.dirty.ratio`.", at_least=0, at_most=1, dynamic=True
    )
    log_cleaner_min_compaction_lag_ms = long(
        0, "The default of the topics' `min.compaction.lag.ms`.", at_least=0, dynamic=True
    )
    log_cleanup_policy = names(
        ("delete",), "The default of the topics' `cleanup.policy`.", one_of=CLEANUP_POLICIES, dynamic=True
    )
    log_flush_interval_messages = long(
        LONG_MAX, "The default of the topics' `flush.messages`.", at_least=1, dynamic=True
    )
    log_flush_interval_ms = optional_long(
        None, "The default of the topics' `flush.ms`; unset, `log.flush.scheduler.interval.ms` counts.", dynamic=True
    )
    log_flush_scheduler_interval_ms = long(
        LONG_MAX, "How often logs are looked at for a flush that `flush.ms` asks for."
    )
    log_index_interval_bytes = integer(
        4096, "The default of the topics' `index.interval.bytes`.", at_least=0, dynamic=True
    )
    log_index_size_max_bytes = integer(
        10_485_760, "The default of the topics' `segment.index.bytes`.", at_least=4, dynamic=True
    )
    log_local_retention_bytes = long(
        -2, "The default of the topics' `local.retention.bytes`, which Tidelog doesn't use.", at_least=-2, dynamic=True
    )
    log_local_retention_ms = long(
        -2, "The default of the topics' `local.retention.ms`, which Tidelog doesn't use.", at_least=-2, dynamic=True
    )
    log_message_timestamp_after_max_ms = long(
        3_600_000, "The default of the topics' `message.timestamp.after.max.ms`.", at_least=0, dynamic=True
    )
    log_message_timestamp_before_max_ms = long(
        LONG_MAX, "The default of the topics' `message.timestamp.before.max.ms`.", at_least=0, dynamic=True
    )
    log_message_timestamp_type = text(
        "CreateTime", "The default of the topics' `message.timestamp.type`.", one_of=TIMESTAMP_TYPES, dynamic=True
    )
    log_preallocate = boolean(False, "The default of the topics' `preallocate`.", dynamic=True)
    log_retention_bytes = long(-1, "The default of the topics' `retention.bytes`.", dynamic=True)
    log_retention_hours = integer(168, "The default of the topics' `retention.ms`, in hours.")
    log_retention_minutes = optional_integer(
        None, "The default of the topics' `retention.ms`, in minutes; wins over `log.retention.hours`."
    )
    log_retention_ms = optional_long(
        None, "The default of the topics' `retention.ms`; wins over the minutes and the hours.", dynamic=True
    )
    log_roll_hours = integer(168, "The default of the topics' `segment.ms`, in hours.", at_least=1)
    log_roll_jitter_hours = integer(0, "The default of the topics' `segment.jitter.ms`, in hours.", at_least=0)
    log_roll_jitter_ms = optional_long(
        None, "The default of the topics' `segment.jitter.ms`; wins over the hours.", dynamic=True
    )
    log_roll_ms = optional_long(None, "The default of the topics' `segment.ms`; wins over the hours.", dynamic=True)
    log_segment_bytes = integer(
        1_073_741_824, "The default of the topics' `segment.bytes`.", at_least=1024 * 1024, dynamic=True
    )
    log_segment_delete_delay_ms = long(
        60_000, "The default of the topics' `file.delete.delay.ms`.", at_least=0, dynamic=True
    )
    message_max_bytes = integer(
        MESSAGE_BYTES_MAX, "The default of the topics' `max.message.bytes`.", at_least=0, dynamic=True
    )
    min_insync_replicas = integer(1, "The default of the topics' `min.insync.replicas`.", at_least=1, dynamic=True)
    unclean_leader_election_enable = boolean(
        False, "The default of the topics' `unclean.leader.election.enable`.", dynamic=True
    )
    tidelog_durability = text(
        "fsync", "The default of the topics' `tidelog.durability`.", one_of=DURABILITIES, dynamic=True
    )
    tidelog_headers_max = integer(
        HEADERS_MAX, "The default of the topics' `tidelog.headers.max`.", at_least=0, dynamic=True
    )
    tidelog_inflated_bytes_max = integer(
        INFLATED_BYTES_MAX, "The default of the topics' `tidelog.inflated.bytes.max`.", at_least=1024, dynamic=True
    )
    tidelog_storage = text(
        "disk",
        "The `tidelog.storage` that new topics get where their maker doesn't say, unless they are compacted or "
        "internal. Topics that are there stay where they are.",
        one_of=STORAGES,
        dynamic=True,
    )
    tidelog_validate = text("batch", "The default of the topics' `tidelog.validate`.", one_of=VALIDATIONS, dynamic=True)
