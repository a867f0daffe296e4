"""Transactions from an operator's side: listed, described, those that hang found, and aborted."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType

from tidelog.client.cluster import client_errors, reach
from tidelog.client.errors import ClientError
from tidelog.client.offline import offline_partitions
from tidelog.rpc.groups import TRANSACTION, coordinator
from tidelog.rpc.open_transactions import OpenTransaction, open_in_partitions, with_owners
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.leases import PREPARED_MS
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.wire.topic_partition import TopicPartition

FENCE_TIMEOUT_MS = 1_000  # whoever uses the id next sets its own; more than brokers allow would be refused
STATE_TOPIC = "__transaction_state"
INTERNAL = (STATE_TOPIC, "__share_group_state")


@dataclass(frozen=True, slots=True)
class Listed:
    name: str
    state: str
    producer_id: int
    coordinator: int


@dataclass(frozen=True, slots=True)
class Described:
    name: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    """None where no transaction is open, or was since the id was initialised."""
    partitions: list[TopicPartition] = field(default_factory=list[TopicPartition])

    @property
    def prepared(self) -> bool:
        """Whether it is one of two-phase commit whose commit may be recorded elsewhere."""
        return self.timeout_ms == PREPARED_MS


class Transactions:
    """A connection for looking at transactions; to be closed. Every failure is a ClientError."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._cluster = reach(bootstrap)

    def __enter__(self) -> "Transactions":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.close()

    def all(self, states: Iterable[str] = (), longer_than_ms: int = -1, pattern: str | None = None) -> list[Listed]:
        """Those of all brokers, by name; only in these states, open for so long, or matching an RE2 pattern."""
        request = ListTransactionsRequest(
            state_filters=list(states), duration_filter=longer_than_ms, transactional_id_pattern=pattern
        )
        with self._client_errors("list transactions"):
            listed: list[Listed] = []
            for node_id, connection in self._cluster.brokers():
                response = connection.ask(request, ListTransactionsResponse)
                _check(response.error_code, f"broker {node_id}")
                listed += [
                    Listed(each.transactional_id, each.transaction_state, each.producer_id, node_id)
                    for each in response.transaction_states
                ]
        return sorted(listed, key=lambda each: each.name)

    def describe(self, name: str) -> Described:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        with self._client_errors(f"describe transactional id {name}"):
            response = self._cluster.patiently(
                f"describe {name}",
                lambda: coordinator(self._cluster, name, TRANSACTION).ask(request, DescribeTransactionsResponse),
            )
            state = response.transaction_states[0]
            _check(state.error_code, name)
        return Described(
            name,
            state.transaction_state,
            state.producer_id,
            state.producer_epoch,
            state.transaction_timeout_ms,
            state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
            [(topic.topic, index) for topic in state.topics for index in topic.partitions],
        )

    def abort(self, name: str) -> None:
        """Abort the open transaction of a transactional id and fence its producer, as Kafka's fenceProducers does."""
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=FENCE_TIMEOUT_MS)

        def fence() -> None:
            asked = coordinator(self._cluster, name, TRANSACTION).ask(request, InitProducerIdResponse, 5)
            _check(asked.error_code, name)

        with self._client_errors(f"abort the transaction of {name}"):
            self._cluster.patiently(f"fence {name}", fence)

    # -- in partitions

    def open_transactions(self, topics: Iterable[str] = ()) -> list[OpenTransaction]:
        """Transactions that are open in partitions: of these topics, or of all. And whose they are.

        Of partitions that are offline nothing is known; nobody reads them either. ClientError where one has no owner
        that is known, and a coordinator is offline that may know it.
        """
        wanted = list(topics)
        with self._client_errors("look for open transactions"):
            known = self._cluster.topics(wanted or None)
            for missing in set(wanted) - set(known):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {missing}")
            silent = {(each.topic, each.partition) for each in offline_partitions(self._cluster, wanted or None)}
            places = [
                (topic.name, index)
                for topic in known.values()
                if topic.name not in INTERNAL
                for index in topic.partitions
                if (topic.name, index) not in silent
            ]
            standing = with_owners(self._cluster, open_in_partitions(self._cluster, places))
            if any(each.owner is None for each in standing):
                self._refuse_offline_coordinator()
            return standing

    def _refuse_offline_coordinator(self) -> None:
        for each in offline_partitions(self._cluster, [STATE_TOPIC]):
            raise ClientError(
                f"cannot tell whose transactions are open: {each.place}, which may know it, is offline",
                "`tidelog status` says why; abort none before it is back",
            )

    def hanging(self, topics: Iterable[str] = (), longer_than_ms: int = -1) -> list[OpenTransaction]:
        """Those that no coordinator will end by a timeout: of which none knows, and two-phase ones open for so long."""
        return self.hanging_of(self.open_transactions(topics), longer_than_ms)

    def hanging_of(self, standing: list[OpenTransaction], longer_than_ms: int = -1) -> list[OpenTransaction]:
        long = {each.name for each in self.all(["Ongoing"], longer_than_ms)} if standing else set[str]()
        return [
            each
            for each in standing
            if each.ended_by == "nobody" or (each.ended_by in ("owner", "lease") and each.name in long)
        ]

    def find(self, topic: str, partition: int, first_offset: int) -> OpenTransaction:
        """The transaction that is open there from this offset on."""
        for each in self.open_transactions([topic]):
            if (each.partition, each.first_offset) == (partition, first_offset):
                return each
        raise ClientError(
            f"no transaction is open in {topic}-{partition} from offset {first_offset} on",
            "`tidelog txn hanging` shows those that nothing will end",
        )

    def end_hanging(self, hanging: OpenTransaction) -> None:
        """Write an abort marker into the partition, past the coordinator; readers of committed records go on then."""
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=hanging.producer_id,
                    producer_epoch=hanging.producer_epoch,
                    transaction_result=False,
                    topics=[WritableTxnMarkerTopic(name=hanging.topic, partition_indexes=[hanging.partition])],
                    coordinator_epoch=max(hanging.coordinator_epoch, 0),
                )
            ]
        )

        def write() -> None:
            connection, _ = self._cluster.leader(hanging.topic, hanging.partition)
            response = connection.ask(request, WriteTxnMarkersResponse)
            for result in response.markers:
                for topic in result.topics:
                    for each in topic.partitions:
                        _check(each.error_code, f"{topic.name}-{each.partition_index}")

        with self._client_errors(f"abort the transaction in {hanging.topic}-{hanging.partition}"):
            self._cluster.patiently("write the marker", write)

    def _client_errors(self, doing: str) -> AbstractContextManager[None]:
        return client_errors(self._bootstrap, doing, _hint)


def _check(code: int, about: str) -> None:
    if code:
        raise KafkaError(ErrorCode(code), about)


def _hint(error: KafkaError) -> str | None:
    if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return "`tidelog txn list` shows the transactional ids there are"
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "`tidelog topic list` shows the topics there are"
    if error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return "its last transaction is still being ended: try again, and look for partitions that can't be written"
    return None
