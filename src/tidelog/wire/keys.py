"""Which APIs there are, and in which versions: Kafka 4.3's table. Plain data, cheap to import."""

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """Kafka's API keys. The names are those of the messages: `DESCRIBE_LOG_DIRS` is DescribeLogDirs."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ApiRange(NamedTuple):
    """The versions of an API, both ends included, and the first that is flexible (compact lengths, tagged fields)."""

    min: int
    max: int
    flexible_from: int


NEVER = 32767
"""`flexible_from` of an API that has no flexible version."""

RANGES: dict[int, ApiRange] = {
    ApiKey.PRODUCE: ApiRange(3, 13, 9),
    ApiKey.FETCH: ApiRange(4, 18, 12),
    ApiKey.LIST_OFFSETS: ApiRange(1, 11, 6),
    ApiKey.METADATA: ApiRange(0, 13, 9),
    ApiKey.OFFSET_COMMIT: ApiRange(2, 10, 8),
    ApiKey.OFFSET_FETCH: ApiRange(1, 10, 6),
    ApiKey.FIND_COORDINATOR: ApiRange(0, 6, 3),
    ApiKey.JOIN_GROUP: ApiRange(0, 9, 6),
    ApiKey.HEARTBEAT: ApiRange(0, 4, 4),
    ApiKey.LEAVE_GROUP: ApiRange(0, 5, 4),
    ApiKey.SYNC_GROUP: ApiRange(0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: ApiRange(0, 6, 5),
    ApiKey.LIST_GROUPS: ApiRange(0, 5, 3),
    ApiKey.SASL_HANDSHAKE: ApiRange(0, 1, NEVER),
    ApiKey.API_VERSIONS: ApiRange(0, 4, 3),
    ApiKey.CREATE_TOPICS: ApiRange(2, 7, 5),
    ApiKey.DELETE_TOPICS: ApiRange(1, 6, 4),
    ApiKey.DELETE_RECORDS: ApiRange(0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: ApiRange(0, 6, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiRange(2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiRange(0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiRange(0, 4, 3),
    ApiKey.END_TXN: ApiRange(0, 5, 3),
    ApiKey.WRITE_TXN_MARKERS: ApiRange(1, 2, 1),
    ApiKey.TXN_OFFSET_COMMIT: ApiRange(0, 5, 3),
    ApiKey.DESCRIBE_ACLS: ApiRange(1, 3, 2),
    ApiKey.CREATE_ACLS: ApiRange(1, 3, 2),
    ApiKey.DELETE_ACLS: ApiRange(1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: ApiRange(1, 4, 4),
    ApiKey.ALTER_CONFIGS: ApiRange(0, 2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ApiRange(1, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: ApiRange(1, 5, 2),
    ApiKey.SASL_AUTHENTICATE: ApiRange(0, 2, 2),
    ApiKey.CREATE_PARTITIONS: ApiRange(0, 3, 2),
    ApiKey.CREATE_DELEGATION_TOKEN: ApiRange(1, 3, 2),
    ApiKey.RENEW_DELEGATION_TOKEN: ApiRange(1, 2, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ApiRange(1, 2, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ApiRange(1, 3, 2),
    ApiKey.DELETE_GROUPS: ApiRange(0, 2, 2),
    ApiKey.ELECT_LEADERS: ApiRange(0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiRange(0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiRange(0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiRange(0, 0, 0),
    ApiKey.OFFSET_DELETE: ApiRange(0, 0, NEVER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiRange(0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiRange(0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiRange(0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiRange(0, 0, 0),
    ApiKey.VOTE: ApiRange(0, 2, 0),
    ApiKey.BEGIN_QUORUM_EPOCH: ApiRange(0, 1, 1),
    ApiKey.END_QUORUM_EPOCH: ApiRange(0, 1, 1),
    ApiKey.DESCRIBE_QUORUM: ApiRange(0, 2, 0),
    ApiKey.ALTER_PARTITION: ApiRange(2, 3, 0),
    ApiKey.UPDATE_FEATURES: ApiRange(0, 2, 0),
    ApiKey.ENVELOPE: ApiRange(0, 0, 0),
    ApiKey.FETCH_SNAPSHOT: ApiRange(0, 1, 0),
    ApiKey.DESCRIBE_CLUSTER: ApiRange(0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: ApiRange(0, 0, 0),
    ApiKey.BROKER_REGISTRATION: ApiRange(0, 4, 0),
    ApiKey.BROKER_HEARTBEAT: ApiRange(0, 2, 0),
    ApiKey.UNREGISTER_BROKER: ApiRange(0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiRange(0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: ApiRange(0, 2, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: ApiRange(0, 0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiRange(0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiRange(0, 1, 0),
    ApiKey.CONTROLLER_REGISTRATION: ApiRange(0, 0, 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ApiRange(0, 0, 0),
    ApiKey.PUSH_TELEMETRY: ApiRange(0, 0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ApiRange(0, 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: ApiRange(0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiRange(0, 0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: ApiRange(1, 1, 0),
    ApiKey.SHARE_GROUP_DESCRIBE: ApiRange(1, 1, 0),
    ApiKey.SHARE_FETCH: ApiRange(1, 2, 0),
    ApiKey.SHARE_ACKNOWLEDGE: ApiRange(1, 2, 0),
    ApiKey.ADD_RAFT_VOTER: ApiRange(0, 1, 0),
    ApiKey.REMOVE_RAFT_VOTER: ApiRange(0, 0, 0),
    ApiKey.UPDATE_RAFT_VOTER: ApiRange(0, 0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ApiRange(0, 0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: ApiRange(0, 0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: ApiRange(0, 1, 0),
    ApiKey.DELETE_SHARE_GROUP_STATE: ApiRange(0, 0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ApiRange(0, 1, 0),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ApiRange(0, 0, 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: ApiRange(0, 0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiRange(0, 1, 0),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiRange(0, 0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiRange(0, 0, 0),
}
