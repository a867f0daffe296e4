"""Which API is served on which kind of listener: Kafka 4.3's table, and the only one.

Clients and other brokers come to a broker's listeners; controllers, brokers that report to them and tools with
`--bootstrap-controller` come to those in `controller.listener.names`. Whoever asks for an API on a listener that
doesn't serve it has its connection closed, as by Kafka: ApiVersions told it what there is.
"""

from enum import Enum

from tidelog.apis import SERVED
from tidelog.config.broker import BrokerConfig
from tidelog.wire.keys import ApiKey


class ListenerKind(Enum):
    BROKER = "broker"
    CONTROLLER = "controller"


CONTROLLER_ONLY = frozenset(
    {
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)

BOTH = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""All others are served by brokers only."""

FORWARDED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""What a broker passes on to the active controller (Envelope) where that is another node."""


def listeners_of(key: int) -> frozenset[ListenerKind]:
    """The kinds of listener that Kafka serves the API on."""
    if key in CONTROLLER_ONLY:
        return frozenset({ListenerKind.CONTROLLER})
    return frozenset(ListenerKind) if key in BOTH else frozenset({ListenerKind.BROKER})


def served_on(kind: ListenerKind) -> frozenset[int]:
    """The APIs that are served here on such a listener."""
    return frozenset(key for key in SERVED if kind in listeners_of(key))


def kind_of(listener: str, config: BrokerConfig) -> ListenerKind:
    """The kind of the listener of this name."""
    return ListenerKind.CONTROLLER if listener in config.controller_listener_names else ListenerKind.BROKER
