"""How a cluster is, as far as it tells: brokers, disks, offline partitions, hanging transactions, groups.

Everything is asked for by Kafka's own requests. What a broker doesn't tell (an Apache Kafka doesn't tell its version or
its last recovery) is None: unknown, never zero.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from tidelog.client.bounds import ASKED_GROUPS_MAX, OPEN_LONGER_THAN_MS
from tidelog.client.cluster import connected
from tidelog.client.errors import ClientError
from tidelog.client.groups import Group, Groups
from tidelog.client.in_sync import Lagging, lagging_partitions
from tidelog.client.lag import Progress
from tidelog.client.log_dirs import LogDir, log_dirs
from tidelog.client.offline import Offline, offline_partitions
from tidelog.client.transactions import Transactions
from tidelog.rpc.cluster import Cluster
from tidelog.rpc.connection import Connection
from tidelog.rpc.errors import Lost, Unsupported
from tidelog.rpc.groups import OF_SPARK_SINKS
from tidelog.rpc.offsets import EARLIEST, LATEST, list_offsets
from tidelog.rpc.open_transactions import OpenTransaction
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
)
from tidelog.wire.topic_partition import TopicPartition

T = TypeVar("T")

BROKER_RESOURCE = 4
FACTS_PREFIX = "tidelog."
SETTLES_WITHIN_S = 5.0
"""A rebalance that takes longer than this is worth a word."""
COMMITS_WITHIN_S = 6.0
"""Consumers that commit by themselves do it every 5 s unless they are told otherwise."""
HEARD_WITHIN_S = 5.0
"""Controllers fetch from the active one twice a second, and more."""
OFFSETS_TOPIC = "__consumer_offsets"
METADATA_TOPIC = "__cluster_metadata"
LEADER_FACT = "tidelog.quorum.leader.id"


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """`facts` are what it tells of itself beside its settings; none of a broker that isn't a Tidelog."""

    id: int
    address: str
    facts: dict[str, str]
    folders: list[LogDir] | None

    def taken_per_day(self, folder: LogDir) -> int | None:
        """Bytes by which the folder's free space shrinks in a day; None where that isn't known (yet)."""
        rates = self.facts.get("tidelog.disk.taken.bytes.per.day", "").split(",")
        place = (self.folders or []).index(folder)
        return int(rates[place]) if place < len(rates) and rates[place] else None


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """`committed`, `unread`: partitions with an offset, and records behind it, or None where nothing was committed.
    `waiting`: records in the partitions that its members have."""

    name: str
    state: str
    members: int
    committed: int
    unread: int | None
    waiting: int
    topics: tuple[str, ...]
    beyond_end: tuple[Progress, ...] = ()
    """Partitions whose committed offset is beyond their end."""


@dataclass(slots=True)
class Health:
    bootstrap: str
    cluster_id: str | None
    brokers: list[BrokerHealth]
    topics: int
    partitions: int
    offline: list[Offline]
    lagging: list[Lagging] = field(default_factory=list[Lagging])
    open_transactions: list[OpenTransaction] | None = None
    hanging: list[OpenTransaction] | None = None
    """Those of them that no coordinator ends."""
    groups: list[GroupHealth] | None = None
    groups_in_all: int | None = None
    asked_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    unreachable: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Brokers of the cluster that don't answer, each with why."""
    voters: list[int] = field(default_factory=list[int])
    """The controllers that elect, as the active one tells them."""
    silent_voters: list[int] = field(default_factory=list[int])
    """Those of them that it doesn't hear."""
    unknown: list[str] = field(default_factory=list[str])
    """What could not be found out, and why."""


def health(bootstrap: str) -> Health:
    """Ask for everything. ClientError where no broker answers."""
    with connected(bootstrap, "find out how the cluster is") as cluster:
        return _Asking(bootstrap, cluster).everything()


class _Asking:
    def __init__(self, bootstrap: str, cluster: Cluster) -> None:
        self._bootstrap = bootstrap
        self._cluster = cluster
        self._unknown: list[str] = []

    def everything(self) -> Health:
        cluster = self._cluster
        brokers, unreachable = self._brokers()
        known = cluster.topics()
        offline = offline_partitions(cluster)
        health = Health(
            self._bootstrap,
            self._attempt("the cluster's id", self._cluster_id),
            brokers,
            len(known),
            sum(len(topic.partitions) for topic in known.values()),
            offline,
            unreachable=unreachable,
            unknown=self._unknown,
        )
        health.lagging = self._attempt("replicas in sync", lambda: lagging_partitions(cluster)) or []
        if all(broker.facts.get(LEADER_FACT) != "" for broker in brokers):  # else nobody would answer for long
            self._attempt("controllers", lambda: self._controllers(health))
        self._attempt("transactions", lambda: self._transactions(health))
        self._attempt("groups", lambda: self._groups(health))
        return health

    def _brokers(self) -> tuple[list[BrokerHealth], list[tuple[int, str]]]:
        """Those that answer, and those that don't: a broker that died is listed until a controller has it fenced. Where
        none of them answers, as the last one failed."""
        answer: list[BrokerHealth] = []
        silent: list[tuple[int, str]] = []
        trouble: Lost | None = None
        for node_id, address in self._cluster.broker_addresses():
            try:
                answer.append(self._broker(node_id, self._cluster.connection(address)))
            except Lost as error:
                trouble = error
                self._cluster.drop(address)
                silent.append((node_id, str(error)))
        if trouble is not None and not answer:
            raise trouble
        return answer, silent

    def _attempt(self, what: str, ask: Callable[[], T]) -> T | None:
        """The answer; None, and a note, where this one thing can't be told."""
        try:
            return ask()
        except (KafkaError, ClientError, Unsupported) as error:
            self._unknown.append(f"{what}: {getattr(error, 'message', None) or error}")
            return None

    def _cluster_id(self) -> str:
        return self._cluster.any().ask(DescribeClusterRequest(), DescribeClusterResponse).cluster_id

    def _broker(self, node_id: int, connection: Connection) -> BrokerHealth:
        facts = self._attempt(f"facts of broker {node_id}", lambda: _facts(connection, node_id)) or {}
        folders = self._attempt(f"data folders of broker {node_id}", lambda: log_dirs(connection))
        return BrokerHealth(node_id, str(connection.address), facts, folders)

    def _controllers(self, health: Health) -> None:
        """A controller that has just come to lead gives the others time to be heard."""
        deadline = time.monotonic() + HEARD_WITHIN_S
        while True:
            voters = self._voters()
            newest_ms = max((voter.last_fetch_timestamp for voter in voters), default=0)
            new = any(voter.last_fetch_timestamp < 0 for voter in voters)
            if not new or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        late_ms = newest_ms - int(HEARD_WITHIN_S * 1000)
        health.voters = sorted(voter.replica_id for voter in voters)
        health.silent_voters = sorted(voter.replica_id for voter in voters if voter.last_fetch_timestamp < late_ms)

    def _voters(self) -> list[ReplicaState]:
        """Those of the metadata log. The leader's own time is the present one."""
        asked = DescribeQuorumRequest(
            topics=[RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])]
        )
        response = self._cluster.any().ask(asked, DescribeQuorumResponse)
        told = [each for topic in response.topics for each in topic.partitions]
        for code in (response.error_code, *(each.error_code for each in told)):
            if code:
                raise KafkaError(ErrorCode(code), "the active controller doesn't tell")
        return [voter for each in told for voter in each.current_voters]

    def _transactions(self, health: Health) -> None:
        with Transactions(self._bootstrap) as transactions:
            health.open_transactions = transactions.open_transactions()
            health.hanging = transactions.hanging_of(health.open_transactions, OPEN_LONGER_THAN_MS)

    # -- groups

    def _groups(self, health: Health) -> None:
        for each in health.offline:
            if each.topic == OFFSETS_TOPIC:
                raise ClientError(f"{each.place}, which keeps some of them, is offline")
        for node_id, _ in health.unreachable:
            raise ClientError(f"broker {node_id}, which may keep some of them, doesn't answer")
        asking = Groups(self._bootstrap)
        every = [group for group in asking.all() if not group.name.startswith(OF_SPARK_SINKS)]
        health.groups_in_all = len(every)
        offline = {(each.topic, each.partition) for each in health.offline}
        groups = self._settled(asking, every[:ASKED_GROUPS_MAX])
        committed = self._committed(asking, groups)
        places = {place for offsets in committed.values() for place in offsets}
        places |= {place for group in groups for member in group.members for place in member.partitions}
        known = self._cluster.topics({topic for topic, _ in places})
        there = {
            (topic, index)
            for topic, index in places
            if topic in known and index in known[topic].partitions and (topic, index) not in offline
        }
        starts, ends = self._offsets(there, EARLIEST), self._offsets(there, LATEST)
        health.groups = [_group(group, committed[group.name], starts, ends) for group in groups]

    def _settled(self, asking: Groups, groups: list[Group]) -> list[Group]:
        """Those that rebalance are looked at once more, after a while."""
        moving = {group.name for group in groups if group.state == "rebalancing"}
        if not moving:
            return groups
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while moving and time.monotonic() < deadline:
            time.sleep(0.5)
            moving = {name for name in moving if asking.group(name).state == "rebalancing"}
        return [asking.group(group.name) if group.state == "rebalancing" else group for group in groups]

    def _committed(self, asking: Groups, groups: list[Group]) -> dict[str, dict[TopicPartition, int]]:
        """The offsets of each. Groups with members that have none are asked again until consumers that commit by
        themselves have done so: those may have just begun."""
        by_group = {group.name: asking.committed(group.name) for group in groups}
        new = {group.name for group in groups if group.members and not by_group[group.name]}
        deadline = time.monotonic() + COMMITS_WITHIN_S
        while new and time.monotonic() < deadline:
            time.sleep(0.5)
            by_group |= {name: asking.committed(name) for name in new}
            new = {name for name in new if not by_group[name]}
        return by_group

    def _offsets(self, places: Iterable[TopicPartition], which: int) -> dict[TopicPartition, int]:
        asked = dict.fromkeys(places, which)
        return {place: each.offset for place, each in list_offsets(self._cluster, asked).items()} if asked else {}


def _group(
    group: Group,
    committed: dict[TopicPartition, int],
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> GroupHealth:
    assigned = {place for member in group.members for place in member.partitions}
    progress = [
        Progress(*place, committed.get(place), starts.get(place), end=ends.get(place))
        for place in assigned | committed.keys()
    ]
    return GroupHealth(
        group.name,
        group.state,
        len(group.members),
        len(committed),
        sum(each.lag or 0 for each in progress) if committed else None,
        sum(ends[place] - starts[place] for place in assigned if place in ends),
        tuple(sorted({topic for topic, _ in assigned | committed.keys()})),
        tuple(sorted((each for each in progress if each.beyond_end), key=lambda each: each.place)),
    )


def _facts(connection: Connection, node_id: int) -> dict[str, str]:
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=None
    )
    [result] = connection.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse).results
    return {
        each.name: each.value
        for each in result.configs
        if each.name.startswith(FACTS_PREFIX) and each.read_only and each.value is not None
    }
