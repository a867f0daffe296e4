"""Transactions from an operator's side: listed, described, those that hang found, and aborted."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType

from tidelog.client.cluster import reach, told
from tidelog.client.errors import ClientError
from tidelog.client.offline import offline_partitions
from tidelog.rpc.groups import TRANSACTION, coordinator
from tidelog.rpc.open_in import StandingOpen, open_in, with_owners
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
    partitions: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

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
        with self._told("list transactions"):
            found: list[Listed] = []
            for node_id, connection in self._cluster.brokers():
                response = connection.ask(request, ListTransactionsResponse)
                _check(response.error_code, f"broker {node_id}")
                found += [
                    Listed(each.transactional_id, each.transaction_state, each.producer_id, node_id)
                    for each in response.transaction_states
                ]
        return sorted(found, key=lambda each: each.name)

    def describe(self, name: str) -> Described:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        with self._told(f"describe transactional id {name}"):
            response = self._cluster.patiently(
                f"describe {name}",
                lambda: coordinator(self._cluster, name, TRANSACTION).ask(request, DescribeTransactionsResponse),
            )
            found = response.transaction_states[0]
            _check(found.error_code, name)
        return Described(
            name,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
            [(topic.topic, index) for topic in found.topics for index in topic.partitions],
        )

    def abort(self, name: str) -> None:
        """Abort the open transaction of a transactional id and fence its producer, as Kafka's fenceProducers does."""
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=FENCE_TIMEOUT_MS)

        def fence() -> None:
            asked = coordinator(self._cluster, name, TRANSACTION).ask(request, InitProducerIdResponse, 5)
            _check(asked.error_code, name)

        with self._told(f"abort the transaction of {name}"):
            self._cluster.patiently(f"fence {name}", fence)

    # -- in partitions

    def open_in(self, topics: Iterable[str] = ()) -> list[StandingOpen]:
        """Transactions that are open in partitions: of these topics, or of all. And whose they are.

        Of partitions that are offline nothing is known; nobody reads them either. ClientError where one has no owner
        that is known, and a coordinator is offline that may know it.
        """
        wanted = list(topics)
        with self._told("look for open transactions"):
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
            found = with_owners(self._cluster, open_in(self._cluster, places))
            if any(each.owner is None for each in found):
                self._refuse_offline_coordinator()
            return found

    def _refuse_offline_coordinator(self) -> None:
        for each in offline_partitions(self._cluster, [STATE_TOPIC]):
            raise ClientError(
                f"cannot tell whose transactions are open: {each.place}, which may know it, is offline",
                "`tidelog status` says why; abort none before it is back",
            )

    def hanging(self, topics: Iterable[str] = (), longer_than_ms: int = -1) -> list[StandingOpen]:
        """Those that no coordinator will end by a timeout: of which none knows, and two-phase ones open for so long."""
        return self.hanging_of(self.open_in(topics), longer_than_ms)

    def hanging_of(self, found: list[StandingOpen], longer_than_ms: int = -1) -> list[StandingOpen]:
        long = {each.name for each in self.all(["Ongoing"], longer_than_ms)} if found else set[str]()
        return [
            each
            for each in found
            if each.ended_by == "nobody" or (each.ended_by in ("owner", "lease") and each.name in long)
        ]

    def find(self, topic: str, partition: int, first_offset: int) -> StandingOpen:
        """The transaction that is open there from this offset on."""
        for each in self.open_in([topic]):
            if (each.partition, each.first_offset) == (partition, first_offset):
                return each
        raise ClientError(
            f"no transaction is open in {topic}-{partition} from offset {first_offset} on",
            "`tidelog txn hanging` shows those that nothing will end",
        )

    def end_hanging(self, hanging: StandingOpen) -> None:
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

        with self._told(f"abort the transaction in {hanging.topic}-{hanging.partition}"):
            self._cluster.patiently("write the marker", write)

    def _told(self, doing: str) -> AbstractContextManager[None]:
        return told(self._bootstrap, doing, _hint)


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
