"""Writing record batches to partitions, as they are: built by the caller, acknowledged by all replicas."""

from collections import deque
from dataclasses import dataclass

from tidelog.rpc.bounds import BATCHES_IN_FLIGHT_MAX, TIMEOUT_MS
from tidelog.rpc.cluster import Cluster
from tidelog.rpc.connection import Connection
from tidelog.rpc.errors import Lost
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

ALL = -1
_VERSION_MAX = 13


def produce(
    cluster: Cluster,
    topic: str,
    partition: int,
    batch: bytes | bytearray,
    *,
    transactional_id: str | None = None,
    version_max: int = _VERSION_MAX,
) -> int:
    """Append one record batch; the offset of its first record.

    Repeated after what may pass, so that a batch may come twice unless it carries a producer id and a sequence, by
    which the broker knows it again.
    """
    sent = _Sent(topic, partition, batch, transactional_id, version_max)
    return cluster.patiently(f"write to {topic}-{partition}", lambda: sent.answer(sent.go(cluster)))


class Refused(KafkaError):
    """A batch that was not taken, and won't be by sending it again."""

    def __init__(self, error: KafkaError, topic: str, batch: bytes | bytearray) -> None:
        super().__init__(error.code, str(error))
        self.topic = topic
        self.batch = batch


class Pipeline:
    """Batches of one producer, some of them on their way at once; those of a partition keep their order.

    Each must carry the producer's id and sequence. What isn't acknowledged at once is sent again alone, in order, which
    is harmless: the broker knows what it has already, and takes nothing that comes before its turn.
    Nobody else may use the cluster's connections until `settle` has returned, or `drop`.
    """

    def __init__(self, cluster: Cluster, transactional_id: str | None = None) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._under_way: deque[tuple[_Sent, Connection | None]] = deque()

    def add(self, topic: str, partition: int, batch: bytes | bytearray) -> None:
        """Send a batch; Refused where it, or one before it, isn't taken."""
        if not self._cluster.knows(topic):
            self.settle()  # asking for the leader needs a connection without answers on their way
        elif len(self._under_way) >= BATCHES_IN_FLIGHT_MAX:
            self._receive()
        sent = _Sent(topic, partition, batch, self._transactional_id, _VERSION_MAX)
        try:
            self._under_way.append((sent, sent.go(self._cluster)))
        except (Lost, KafkaError) as error:
            if isinstance(error, Lost):
                self._cluster.drop(error.address)
            self._under_way.append((sent, None))
            self._again()

    def settle(self) -> None:
        """Until everything is acknowledged."""
        while self._under_way:
            self._receive()

    def drop(self) -> None:
        """Forget what is on its way, after an error: its answers would be taken for others'."""
        for connection in {connection for _, connection in self._under_way if connection is not None}:
            self._cluster.drop(connection.address)
        self._under_way.clear()

    def _receive(self) -> None:
        sent, connection = self._under_way[0]
        if connection is None or not self._came(sent, connection):
            self._again()
        else:
            self._under_way.popleft()

    def _came(self, sent: "_Sent", connection: Connection) -> bool:
        try:
            sent.answer(connection)
        except Lost as error:
            self._cluster.drop(error.address)
        except KafkaError:
            return False
        else:
            return True
        return False

    def _again(self) -> None:
        """Send what is on its way once more, one after the other, on new connections."""
        held = [sent for sent, _ in self._under_way]
        self.drop()
        self._cluster.forget()
        for sent in held:
            try:
                produce(self._cluster, sent.topic, sent.partition, sent.batch, transactional_id=sent.transactional_id)
            except KafkaError as error:
                raise Refused(error, sent.topic, sent.batch) from error


@dataclass(frozen=True, slots=True)
class _Sent:
    """A batch, and how it is sent."""

    topic: str
    partition: int
    batch: bytes | bytearray
    transactional_id: str | None
    version_max: int

    def go(self, cluster: Cluster) -> Connection:
        connection, _ = cluster.leader(self.topic, self.partition)
        data = PartitionProduceData(index=self.partition, records=memoryview(self.batch))
        known = cluster.topic(self.topic)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ALL,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self.topic, topic_id=known.id, partition_data=[data])],
        )
        connection.send(request, self.version_max, TIMEOUT_MS / 1000)
        return connection

    def answer(self, connection: Connection) -> int:
        response = connection.receive(ProduceResponse)
        [answer] = response.responses[0].partition_responses
        code = ErrorCode(answer.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            raise KafkaError(code, answer.error_message or f"a batch to {self.topic}-{self.partition}")
        return answer.base_offset
