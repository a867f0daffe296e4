"""Transactions that are open in partitions, and whose they are: what readers of committed records wait behind."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tidelog.rpc.cluster import Cluster
from tidelog.rpc.connection import Connection
from tidelog.rpc.offsets import LATEST, READ_COMMITTED, list_offsets
from tidelog.rpc.transactions import Described, describe_all
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.topic_partition import TopicPartition

UNFINISHED = ["Ongoing", "PrepareCommit", "PrepareAbort"]

EndedBy: TypeAlias = Literal["nobody", "owner", "lease", "timeout", "coordinator"]
"""Who ends an open transaction: nobody, since no coordinator knows it; its owner alone, as in two-phase commit; else
its coordinator: when its lease or its timeout is over, or right now."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition, as the partition sees it, and `owner`, as its coordinator does."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_written_ms: int
    owner: Described | None = None

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def name(self) -> str | None:
        """The transactional id, where a coordinator knows it."""
        return None if self.owner is None else self.owner.producer.transactional_id

    @property
    def since_ms(self) -> int:
        """When it was begun; of one that no coordinator knows, when it last wrote here."""
        return self.last_written_ms if self.owner is None else self.owner.started_ms

    @property
    def ended_by(self) -> EndedBy:
        if self.owner is None:
            return "nobody"
        if not self.owner.is_open:
            return "coordinator"
        if not self.owner.two_phase:
            return "timeout"
        return "lease" if self.owner.leased else "owner"


@dataclass(frozen=True, slots=True)
class Behind:
    """Records that readers of committed ones can't have yet, and the oldest open transaction, which they wait for."""

    records: int
    transaction: OpenTransaction


def behind_open(cluster: Cluster, places: Iterable[TopicPartition]) -> list[Behind]:
    """What lies behind open transactions, by partition."""
    asked = dict.fromkeys(places, LATEST)
    return behind_ends(cluster, {place: each.offset for place, each in list_offsets(cluster, asked).items()})


def behind_ends(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> list[Behind]:
    """What lies behind open transactions in partitions that end there (by their high watermarks)."""
    stable = list_offsets(cluster, dict.fromkeys(ends, LATEST), READ_COMMITTED)
    held_up = {place: end - stable[place].offset for place, end in ends.items()}
    oldest: dict[TopicPartition, OpenTransaction] = {}
    for each in open_in_partitions(cluster, [place for place, records in held_up.items() if records > 0]):
        if each.place not in oldest or each.first_offset < oldest[each.place].first_offset:
            oldest[each.place] = each
    return [Behind(held_up[each.place], each) for each in with_owners(cluster, oldest.values())]


def open_in_partitions(cluster: Cluster, places: Iterable[TopicPartition]) -> list[OpenTransaction]:
    """Transactions that are open in these partitions, without their owners; one request a leader."""
    wanted = list(places)
    by_partition: dict[TopicPartition, list[OpenTransaction]] = {}

    def once() -> None:
        grouped: dict[Connection, dict[str, list[int]]] = {}
        for topic, index in (place for place in wanted if place not in by_partition):
            connection, _ = cluster.leader(topic, index)
            grouped.setdefault(connection, {}).setdefault(topic, []).append(index)
        for connection, topics in grouped.items():
            asked = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
            response = connection.ask(DescribeProducersRequest(topics=asked), DescribeProducersResponse)
            for topic in response.topics:
                for answer in topic.partitions:
                    if answer.error_code:
                        raise KafkaError(ErrorCode(answer.error_code), f"{topic.name}-{answer.partition_index}")
                    by_partition[topic.name, answer.partition_index] = [
                        OpenTransaction(
                            topic.name,
                            answer.partition_index,
                            producer.producer_id,
                            producer.producer_epoch,
                            producer.coordinator_epoch,
                            producer.current_txn_start_offset,
                            producer.last_timestamp,
                        )
                        for producer in answer.active_producers
                        if producer.current_txn_start_offset >= 0
                    ]

    if wanted:
        cluster.patiently("describe producers", once)
    return [each for place in wanted for each in by_partition[place]]


def with_owners(cluster: Cluster, transactions: Iterable[OpenTransaction]) -> list[OpenTransaction]:
    """Each with its owner: a coordinator's unfinished transaction of that producer, with this partition in it.

    One that has none is looked for once more: it may have ended while coordinators were asked.
    """
    seen = list(transactions)
    names = _names(cluster, {each.producer_id for each in seen}) if seen else []
    owners = {
        (owner.producer.id, place): owner for owner in describe_all(cluster, names).values() for place in owner.places
    }
    owned = [replace(each, owner=owners.get((each.producer_id, each.place))) for each in seen]
    orphans = [each for each in owned if each.owner is None]
    still = {_known_by(each) for each in open_in_partitions(cluster, {each.place for each in orphans})}
    return [each for each in owned if each.owner is not None or _known_by(each) in still]


def _known_by(each: OpenTransaction) -> tuple[TopicPartition, int, int]:
    return each.place, each.producer_id, each.first_offset


def _names(cluster: Cluster, producer_ids: Iterable[int]) -> list[str]:
    """The transactional ids of producers that have something unfinished."""
    request = ListTransactionsRequest(state_filters=UNFINISHED, producer_id_filters=sorted(producer_ids))

    def once() -> list[str]:
        listed: list[str] = []
        for connection in cluster.every():
            response = connection.ask(request, ListTransactionsResponse)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code), "list the transactions")
            listed += [each.transactional_id for each in response.transaction_states]
        return listed

    return cluster.patiently("list the transactions", once)
