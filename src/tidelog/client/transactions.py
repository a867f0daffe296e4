"""Transactions from an operator's side: listed, described, those that hang found, and aborted."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType

from tidelog.client.connect import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S
from tidelog.client.errors import ClientError, no_broker
from tidelog.rpc.cluster import Cluster
from tidelog.rpc.errors import Lost, Unreachable, Unsupported
from tidelog.rpc.groups import TRANSACTION, coordinator
from tidelog.rpc.options import Options
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
FENCE_TIMEOUT_MS = 1_000  # whoever uses the id next sets its own; more than brokers allow would be refused
INTERNAL = ("__transaction_state", "__share_group_state")


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


@dataclass(frozen=True, slots=True)
class Open:
    """A transaction that is open in a partition, as the partition sees it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_written_ms: int


class Transactions:
    """A connection for looking at transactions; to be closed. Every failure is a ClientError."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        options = Options(
            connect_timeout_s=CONNECT_TIMEOUT_S, request_timeout_s=REQUEST_TIMEOUT_S, patience_s=REQUEST_TIMEOUT_S
        )
        self._cluster = Cluster(bootstrap, options)

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
            told = response.transaction_states[0]
            _check(told.error_code, name)
        return Described(
            name,
            told.transaction_state,
            told.producer_id,
            told.producer_epoch,
            told.transaction_timeout_ms,
            told.transaction_start_time_ms if told.transaction_start_time_ms >= 0 else None,
            [(topic.topic, index) for topic in told.topics for index in topic.partitions],
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

    def open_in(self, topics: Iterable[str] = ()) -> list[Open]:
        """Transactions that are open in partitions: of these topics, or of all."""
        wanted = list(topics)
        with self._told("look for open transactions"):
            known = self._cluster.topics(wanted or None)
            for missing in set(wanted) - set(known):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {missing}")
            return [
                _open(topic.name, index, producer)
                for topic in known.values()
                if topic.name not in INTERNAL
                for index in topic.partitions
                for producer in self._producers(topic.name, index)
                if producer.current_txn_start_offset >= 0
            ]

    def hanging(self, topics: Iterable[str] = ()) -> list[Open]:
        """Those open in a partition of which no coordinator knows: nothing will end them."""
        found = self.open_in(topics)
        known: set[tuple[int, str, int]] = set()
        for listed in self.all(["Ongoing", "PrepareCommit", "PrepareAbort"]) if found else ():
            described = self.describe(listed.name)
            known |= {(described.producer_id, topic, index) for topic, index in described.partitions}
        return [each for each in found if (each.producer_id, each.topic, each.partition) not in known]

    def find(self, topic: str, partition: int, first_offset: int) -> Open:
        """The transaction that is open there from this offset on."""
        for each in self.open_in([topic]):
            if (each.partition, each.first_offset) == (partition, first_offset):
                return each
        raise ClientError(
            f"no transaction is open in {topic}-{partition} from offset {first_offset} on",
            "`tidelog txn hanging` shows those that nothing will end",
        )

    def end_hanging(self, hanging: Open) -> None:
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

    def _producers(self, topic: str, index: int) -> list[ProducerState]:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])

        def ask() -> list[ProducerState]:
            connection, _ = self._cluster.leader(topic, index)
            told = connection.ask(request, DescribeProducersResponse).topics[0].partitions[0]
            _check(told.error_code, f"{topic}-{index}")
            return told.active_producers

        return self._cluster.patiently(f"describe the producers of {topic}-{index}", ask)

    @contextmanager
    def _told(self, doing: str) -> Generator[None]:
        try:
            yield
        except KafkaError as error:
            raise ClientError(
                f"cannot {doing}: {error.code.name}: {error.message or ''}".rstrip(": "), _hint(error)
            ) from error
        except Unsupported as error:
            raise ClientError(f"cannot {doing}: {error}") from error
        except (Lost, Unreachable) as error:
            raise no_broker(self._bootstrap) from error


def _open(topic: str, index: int, producer: ProducerState) -> Open:
    return Open(
        topic,
        index,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )


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
