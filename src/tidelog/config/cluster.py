"""Settings of a broker as a member of a cluster: its identity, the metadata quorum, replication, internal topics."""

from tidelog.config.setting import Settings, boolean, integer, long, names, optional_text, short

ROLES = ("broker", "controller")
HOST = "tidelog.host"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class IdentitySettings(Settings):
    """Who this broker is."""

    broker_rack = optional_text("The rack or zone of the broker; replicas are spread over racks.")
    cluster_id = optional_text(
        "The cluster's id, 22 characters of base64, for a new folder; unset, one is made. Later it must be the same."
    )
    node_id = integer(1, "The number of this broker in its cluster.", at_least=0)
    process_roles = names(
        ("broker", "controller"), "Whether this process is a broker, a controller, or both.", one_of=ROLES, filled=True
    )
    tidelog_host = optional_text(
        "The machine that the broker runs on: no two replicas of a partition land on one while there is another. "
        "Unset, the advertised host of its first listener."
    )


class TopicSettings(Settings):
    """How topics come and go."""

    auto_create_topics_enable = boolean(True, "Make a topic when a client first asks for it, if the client lets us.")
    default_replication_factor = integer(1, "The replication factor of topics that name none.", at_least=1)
    delete_topic_enable = boolean(True, "Whether DeleteTopics is allowed.")
    num_partitions = integer(1, "The number of partitions of topics that name none.", at_least=1)


class QuorumSettings(Settings):
    """The metadata log and its quorum."""

    broker_heartbeat_interval_ms = integer(2000, "How often a broker reports to the controller.")
    broker_session_timeout_ms = integer(9000, "A broker that was silent for so long is fenced.")
    controlled_shutdown_enable = boolean(
        True, "A broker that stops has the controller move its leaders to others first."
    )
    controller_listener_names = names(
        ("CONTROLLER",),
        "The names of the listeners that controllers talk over. Where `listeners` has one, it is listened on: without "
        "a host, for this machine only, unless `advertised.listeners` or `controller.quorum.voters` tell others of it.",
    )
    controller_quorum_append_linger_ms = integer(
        25, "How long records for the metadata log may be gathered before they are written.", at_least=0
    )
    controller_quorum_auto_join_enable = boolean(
        False, "A controller that is no voter yet becomes one by itself; not with `controller.quorum.voters`."
    )
    controller_quorum_bootstrap_servers = names(
        (), "Where the controllers are, some of them at least, as `host:port`; a node learns from them who all are."
    )
    controller_quorum_election_backoff_max_ms = integer(
        1000, "The longest wait before another try after a lost election.", at_least=0
    )
    controller_quorum_election_timeout_ms = integer(1000, "How long a candidate waits for votes.", at_least=0)
    controller_quorum_fetch_timeout_ms = integer(
        2000, "A voter that fetched nothing from the leader for so long stands for election.", at_least=0
    )
    controller_quorum_request_timeout_ms = integer(2000, "How long a request to another voter may take.", at_least=0)
    controller_quorum_retry_backoff_ms = integer(
        20, "How long to wait before a request to another voter is tried again.", at_least=0
    )
    controller_quorum_voters = names(
        (),
        "All controllers, as `id@host:port`, where they are settings and not part of the metadata (kraft.version 0).",
    )
    initial_broker_registration_timeout_ms = integer(
        60_000, "How long a broker that starts tries to register with the controller before it gives up."
    )
    metadata_log_dir = optional_text("The folder of the metadata log; unset, the first of `log.dirs`.")
    metadata_log_max_record_bytes_between_snapshots = long(
        20_971_520, "A snapshot of the metadata is made after so many bytes of new records.", at_least=1
    )
    metadata_log_max_snapshot_interval_ms = long(
        3_600_000, "A snapshot of the metadata is made at least this often while records come; 0 is never.", at_least=0
    )
    metadata_log_segment_bytes = integer(
        1_073_741_824, "The size at which the metadata log begins a new segment.", at_least=8 * 1024 * 1024
    )
    metadata_log_segment_ms = long(604_800_000, "The age at which the metadata log begins a new segment.")
    metadata_max_idle_interval_ms = integer(
        500, "How often an idle leader of the quorum writes a record that does nothing; 0 is never.", at_least=0
    )
    metadata_max_retention_bytes = long(
        104_857_600, "The size from which old segments and snapshots of the metadata are deleted."
    )
    metadata_max_retention_ms = long(
        604_800_000, "The age from which old segments and snapshots of the metadata are deleted."
    )


class ReplicaSettings(Settings):
    """Replication, and the checkpoint of the high watermark."""

    auto_leader_rebalance_enable = boolean(
        True, "Partitions go back to their preferred leaders by themselves, once these are in sync again."
    )
    leader_imbalance_check_interval_seconds = long(
        300, "How often the controller looks for leaders that should go back to the preferred replica.", at_least=1
    )
    log_dir_failure_timeout_ms = long(
        30_000,
        "A broker that can't tell the controller of a data folder that failed for so long ends, where it leads in it.",
        at_least=1,
    )
    replica_fetch_backoff_ms = integer(1000, "How long a follower waits after a failed fetch.", at_least=0)
    replica_fetch_max_bytes = integer(
        1_048_576, "How many bytes of a partition a follower asks for; the first batch comes whole.", at_least=0
    )
    replica_fetch_min_bytes = integer(1, "How many bytes a follower waits for.")
    replica_fetch_response_max_bytes = integer(
        10_485_760, "How many bytes a follower asks for in one fetch.", at_least=0
    )
    replica_fetch_wait_max_ms = integer(500, "How long a follower's fetch waits for data.")
    replica_high_watermark_checkpoint_interval_ms = long(5000, "How often the high watermarks are written down.")
    replica_lag_time_max_ms = long(30_000, "A follower that lags for so long leaves the in-sync replicas.")
    replica_selector_class = optional_text(
        f"Which replica a consumer reads from: unset, the leader; `{RACK_AWARE}`, one of the consumer's rack."
    )
    replica_socket_timeout_ms = integer(30_000, "How long a follower waits for the leader's answer.")


class InternalTopicSettings(Settings):
    """The topics that the coordinators keep their state in, and the state of idempotent producers."""

    offsets_topic_num_partitions = integer(
        50, "The number of partitions that `__consumer_offsets` is made with.", at_least=1
    )
    offsets_topic_replication_factor = short(
        3, "The replication factor of `__consumer_offsets`; unset, at most the number of brokers.", at_least=1
    )
    offsets_topic_segment_bytes = integer(104_857_600, "`segment.bytes` of `__consumer_offsets`.", at_least=1024 * 1024)
    offsets_topic_compression_codec = integer(
        0,
        "The codec of the records in `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        at_least=0,
        at_most=4,
    )
    transaction_state_log_num_partitions = integer(
        50, "The number of partitions that `__transaction_state` is made with.", at_least=1
    )
    transaction_state_log_replication_factor = short(
        3, "The replication factor of `__transaction_state`; unset, at most the number of brokers.", at_least=1
    )
    transaction_state_log_min_isr = integer(
        2, "`min.insync.replicas` of `__transaction_state`; unset, at most its replication factor.", at_least=1
    )
    transaction_state_log_segment_bytes = integer(
        104_857_600, "`segment.bytes` of `__transaction_state`.", at_least=1024 * 1024
    )
    producer_id_expiration_check_interval_ms = integer(
        600_000, "How often idempotent producers that have gone are forgotten.", at_least=1
    )
    producer_id_expiration_ms = integer(
        86_400_000,
        "An idempotent producer that wrote nothing to a partition for so long is forgotten there.",
        at_least=1,
        dynamic=True,
    )
