"""Every API that the broker serves, listed once. A module is imported when its API is first asked for.

An API module has `handle(context, request)`, which answers with the response or a promise of it.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tidelog.wire.keys import ApiKey

SERVED: dict[int, str] = {
    ApiKey.PRODUCE: "produce",
    ApiKey.FETCH: "fetch",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.OFFSET_COMMIT: "offset_commit",
    ApiKey.OFFSET_FETCH: "offset_fetch",
    ApiKey.FIND_COORDINATOR: "find_coordinator",
    ApiKey.JOIN_GROUP: "join_group",
    ApiKey.HEARTBEAT: "heartbeat",
    ApiKey.LEAVE_GROUP: "leave_group",
    ApiKey.SYNC_GROUP: "sync_group",
    ApiKey.DESCRIBE_GROUPS: "describe_groups",
    ApiKey.LIST_GROUPS: "list_groups",
    ApiKey.API_VERSIONS: "api_versions",
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.DELETE_RECORDS: "delete_records",
    ApiKey.INIT_PRODUCER_ID: "init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch",
    ApiKey.ADD_PARTITIONS_TO_TXN: "add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "add_offsets_to_txn",
    ApiKey.END_TXN: "end_txn",
    ApiKey.WRITE_TXN_MARKERS: "write_txn_markers",
    ApiKey.TXN_OFFSET_COMMIT: "txn_offset_commit",
    ApiKey.DESCRIBE_ACLS: "describe_acls",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs",
    ApiKey.ALTER_CONFIGS: "alter_configs",
    ApiKey.DESCRIBE_LOG_DIRS: "describe_log_dirs",
    ApiKey.CREATE_PARTITIONS: "create_partitions",
    ApiKey.DELETE_GROUPS: "delete_groups",
    ApiKey.ELECT_LEADERS: "elect_leaders",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "incremental_alter_configs",
    ApiKey.OFFSET_DELETE: "offset_delete",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "list_partition_reassignments",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "describe_client_quotas",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "describe_user_scram_credentials",
    ApiKey.VOTE: "vote",
    ApiKey.BEGIN_QUORUM_EPOCH: "begin_quorum_epoch",
    ApiKey.END_QUORUM_EPOCH: "end_quorum_epoch",
    ApiKey.DESCRIBE_QUORUM: "describe_quorum",
    ApiKey.ALTER_PARTITION: "alter_partition",
    ApiKey.UPDATE_FEATURES: "update_features",
    ApiKey.ENVELOPE: "envelope",
    ApiKey.FETCH_SNAPSHOT: "fetch_snapshot",
    ApiKey.DESCRIBE_CLUSTER: "describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "describe_producers",
    ApiKey.DESCRIBE_TRANSACTIONS: "describe_transactions",
    ApiKey.LIST_TRANSACTIONS: "list_transactions",
    ApiKey.BROKER_REGISTRATION: "broker_registration",
    ApiKey.BROKER_HEARTBEAT: "broker_heartbeat",
    ApiKey.UNREGISTER_BROKER: "unregister_broker",
    ApiKey.ALLOCATE_PRODUCER_IDS: "allocate_producer_ids",
    ApiKey.CONTROLLER_REGISTRATION: "controller_registration",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_group_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_group_describe",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "get_telemetry_subscriptions",
    ApiKey.PUSH_TELEMETRY: "push_telemetry",
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: "assign_replicas_to_dirs",
    ApiKey.LIST_CONFIG_RESOURCES: "list_config_resources",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "describe_topic_partitions",
    ApiKey.ADD_RAFT_VOTER: "add_raft_voter",
    ApiKey.REMOVE_RAFT_VOTER: "remove_raft_voter",
    ApiKey.UPDATE_RAFT_VOTER: "update_raft_voter",
}


def handler(key: int) -> Callable[..., Any]:
    """The `handle` function of an API that is served; one that changes something also tells the log of it."""
    from tidelog.apis.shared.administration import watched

    return watched(key, import_module(f"tidelog.apis.{SERVED[key]}").handle)


def preload() -> None:
    """Import what serves every API, with its messages. For a thread: in all it takes a quarter of a second."""
    for key, name in SERVED.items():
        import_module(f"tidelog.wire.messages.{ApiKey(key).name.lower()}")
        import_module(f"tidelog.apis.{name}")
