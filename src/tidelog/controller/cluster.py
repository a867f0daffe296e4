"""From data folders to a running controller: what a broker does first, and the order in which it must be done.

1. `prepare` gives every folder its identity and formats new ones; the store may be opened after it.
2. `open_cluster` puts raft and the controller on the store; `Controller.start()` then leads the quorum of one.
"""

from dataclasses import dataclass

from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import resolve_topic
from tidelog.controller.activation import default_bootstrap
from tidelog.controller.controller import Controller, MetadataError
from tidelog.controller.leaders import Defaults
from tidelog.env import Environment
from tidelog.log.store import Store
from tidelog.metadata.follow import Follower
from tidelog.raft.driver import RaftDriver, RaftSettings
from tidelog.raft.folder import (
    CONTROLLER_LISTENER,
    DEFAULT_CONTROLLER_PORT,
    METADATA_FOLDER,
    format_folder,
    format_metadata,
    open_folders,
    read_bootstrap,
)
from tidelog.raft.store_log import METADATA_CONFIG, StoreLog
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter
from tidelog.wire.errors import MalformedError
from tidelog.wire.records.metadata import decode_record, encode_record


@dataclass(frozen=True, slots=True)
class Folders:
    """The data folders and who they belong to. `directory_ids` are in the order of the folders."""

    cluster_id: str
    node_id: int
    folders: tuple[str, ...]
    directory_ids: tuple[bytes, ...]
    metadata_folder: str
    metadata_directory_id: bytes


def prepare(env: Environment, config: BrokerConfig) -> Folders:
    """Know the folders; format those that are new. FolderError where they belong to another node or cluster."""
    folders = tuple(dict.fromkeys((*config.folders, config.metadata_folder)))
    identities, new = open_folders(env, folders, config.node_id, config.cluster_id)
    by_folder = dict(zip(folders, identities, strict=True))
    metadata = by_folder[config.metadata_folder]
    if config.metadata_folder in new:
        bootstrap = [encode_record(record, 0) for record in default_bootstrap()]
        format_metadata(env, config.metadata_folder, metadata, bootstrap, controller_endpoint(config))
    for folder in new:
        format_folder(env, folder, by_folder[folder])
    return Folders(
        metadata.cluster_id,
        metadata.node_id,
        config.folders,
        tuple(by_folder[folder].directory_id for folder in config.folders),
        config.metadata_folder,
        metadata.directory_id,
    )


def controller_endpoint(config: BrokerConfig) -> Endpoint:
    """Where this node is said to listen as a voter: needed by an Apache Kafka that is started on the folder."""
    if config.controller_listener_list:
        listener = config.controller_listener_list[0]
        host = "localhost" if listener.is_wildcard else listener.host
        return Endpoint(listener.name, host, listener.port or DEFAULT_CONTROLLER_PORT)
    name = config.controller_listener_names[0] if config.controller_listener_names else CONTROLLER_LISTENER
    return Endpoint(name, "localhost", DEFAULT_CONTROLLER_PORT)


def open_cluster(env: Environment, config: BrokerConfig, store: Store, folders: Folders) -> tuple[Controller, Follower]:
    """The controller, not yet started, and the image that it will publish."""
    log = StoreLog(store, env.clock, resolve_topic(metadata_config(config), config))
    local = Voter(ReplicaKey(folders.node_id, folders.metadata_directory_id), (controller_endpoint(config),))
    raft = RaftDriver(env, f"{folders.metadata_folder}/{METADATA_FOLDER}", local, log, raft_settings(config))
    try:
        bootstrap = [decode_record(value) for value in read_bootstrap(env, folders.metadata_folder)]
    except MalformedError as error:
        raise MetadataError(f"{folders.metadata_folder}/bootstrap.checkpoint: {error}") from None
    follower = Follower()
    return Controller(env, raft, follower, bootstrap or default_bootstrap(), decision_defaults(config)), follower


def metadata_config(config: BrokerConfig) -> dict[str, str]:
    return {
        **METADATA_CONFIG,
        "segment.bytes": str(config.metadata_log_segment_bytes),
        "segment.ms": str(config.metadata_log_segment_ms),
    }


def raft_settings(config: BrokerConfig) -> RaftSettings:
    return RaftSettings(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        retention_bytes=config.metadata_max_retention_bytes,
        retention_ms=config.metadata_max_retention_ms,
    )


def decision_defaults(config: BrokerConfig) -> Defaults:
    return Defaults(
        num_partitions=config.num_partitions,
        replication_factor=config.default_replication_factor,
        min_insync_replicas=config.topic_defaults.min_insync_replicas,
        unclean_leader_election=config.topic_defaults.unclean_leader_election_enable,
    )
