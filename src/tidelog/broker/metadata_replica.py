"""This node's replica of the metadata log: who it is, who votes and whom it may ask, by its settings and its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.topic import resolve_topic
from tidelog.raft import folder as folders
from tidelog.raft.node import RaftNode, RaftPlace
from tidelog.raft.settings import RaftSettings
from tidelog.raft.store_log import METADATA_CONFIG, StoreLog
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.rpc.peer import Peers, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.log.store import Store
    from tidelog.raft.folder import FolderIdentity


def metadata_replica(
    env: Environment, config: BrokerConfig, identity: FolderIdentity, store: Store, broke: Callable[[int], None]
) -> RaftNode:
    """`broke` is told of nodes that ended a connection."""
    settings = RaftSettings(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        retention_bytes=config.metadata_max_retention_bytes,
        retention_ms=config.metadata_max_retention_ms,
    )
    endpoint = folders.controller_endpoint(config)
    place = RaftPlace(
        cluster_id=identity.cluster_id,
        folder=f"{config.metadata_folder}/{folders.METADATA_FOLDER}",
        local=Voter(ReplicaKey(identity.node_id, identity.directory_id), (endpoint,)),
        listener=endpoint.name,
        voters=_static_voters(config, endpoint),
        bootstrap=[Endpoint(endpoint.name, host, port) for host, port in config.bootstrap_controllers],
        auto_join=config.controller_quorum_auto_join_enable and config.is_controller,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
    )
    log = StoreLog(store, env.clock, resolve_topic(METADATA_CONFIG, config), config.metadata_folder)
    watch = Watch(broken=lambda node_id, _: broke(node_id))
    return RaftNode(
        env, place, log, settings, Peers(env, "raft", client_id=f"raft-client-{config.node_id}", watch=watch)
    )


def _static_voters(config: BrokerConfig, own: Endpoint) -> VoterSet | None:
    """Who votes where the metadata log doesn't name the voters (kraft.version 0): those of the settings, or this node,
    where it was told of nobody else."""
    if config.static_voters:
        return VoterSet(
            tuple(Voter(ReplicaKey(id), (Endpoint(own.name, host, port),)) for id, host, port in config.static_voters)
        )
    if config.other_controllers:
        return None
    return VoterSet((Voter(ReplicaKey(config.node_id), (own,)),))
