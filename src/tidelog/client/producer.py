"""Sending records, with a bounded queue and a count of what was acknowledged."""

from functools import partial
from types import TracebackType
from typing import Any, TypeAlias, cast

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as KafkaProducer

from tidelog.client.connect import MESSAGE_BYTES_MAX, knock, settings
from tidelog.client.delivery_error import delivery_error
from tidelog.client.errors import ClientError, from_kafka

Headers: TypeAlias = list[tuple[str, bytes | None]]

UNANSWERED = (
    KafkaError._MSG_TIMED_OUT,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._PURGE_QUEUE,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)
"""Nobody said that the record was refused: it may be written."""
PURGED = (KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE)


class Producer:
    """Sends records in the background; `flush`, or leaving the `with` block, waits until all are acknowledged.

    With acks=all (the default) it is idempotent: what is sent again, since an answer was lost, is written once. The
    first record that fails raises ClientError from the next call; `written` and `written_bytes` count the rest.
    """

    def __init__(self, bootstrap: str, **more: Any) -> None:
        """`more` are librdkafka's settings with underscores for dots, as in `compression_type="zstd"`."""
        self._bootstrap = bootstrap
        knock(bootstrap)
        idempotent = str(more.get("acks", "all")) in ("all", "-1")
        merged = {
            "message_max_bytes": MESSAGE_BYTES_MAX,
            "linger_ms": 5,
            "enable_idempotence": idempotent,
            **more,
        }
        self._producer = KafkaProducer(settings(bootstrap, **merged))
        self._failure: tuple[int, str, int | None, KafkaError] | None = None
        self.written = 0
        self.written_bytes = 0
        self.last_offsets: dict[int, int] = {}
        self.unanswered = 0
        """Given up without an answer: they may be written or not."""
        self.first_unwritten: int | None = None
        """The lowest number among the records that were not acknowledged."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
        number: int = 0,
    ) -> None:
        """Queue one record; waits while the queue is full. Timestamp 0 is now, partition -1 the key's.

        `number` is by what the caller knows the record: `failed` tells it.
        """
        delivered = partial(self._delivered, number)
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, delivered, timestamp=timestamp_ms, headers=cast(Any, headers or [])
                )
            except BufferError:
                self._producer.poll(0.1)
                self._raise_failure()
            except KafkaException as error:
                self._note_failure(number, topic, partition, error.args[0])
                break
            else:
                break
        self._producer.poll(0)
        self._raise_failure()

    def flush(self) -> None:
        while self.wait(1.0):
            self._raise_failure()
        self._raise_failure()

    def wait(self, timeout_s: float) -> int:
        """Wait for answers; how many records have none yet."""
        try:
            return self._producer.flush(timeout_s)
        except KafkaException as error:  # what nothing can be written after; the records' own answers say less
            raise from_kafka(error, self._bootstrap, "write records") from error

    def give_up(self) -> None:
        """Send no more of what is queued, and wait no longer for the answers."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=True)
        self._producer.flush(1.0)

    @property
    def failed(self) -> int | None:
        """The number of the record that failed, of several the lowest; not those that were given up."""
        return None if self._failure is None else self._failure[0]

    def failure(self) -> ClientError | None:
        """Why it failed, and what to do. A record that nobody answered for costs a question to the brokers."""
        if self._failure is None:
            return None
        _, topic, partition, error = self._failure
        if error.code() in UNANSWERED:
            return delivery_error(self._bootstrap, topic, partition)
        return from_kafka(error, self._bootstrap, f"write to {topic}")

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._note_failure(number, message.topic() or "", message.partition(), error)
            return
        self.written += 1
        self.written_bytes += len(message)
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            self.last_offsets[partition] = max(offset, self.last_offsets.get(partition, -1))

    def _note_failure(self, number: int, topic: str, partition: int | None, error: KafkaError) -> None:
        self.unanswered += error.code() in UNANSWERED
        self.first_unwritten = number if self.first_unwritten is None else min(number, self.first_unwritten)
        if error.code() not in PURGED and (self._failure is None or number < self._failure[0]):
            known = partition if partition is not None and partition >= 0 else None
            self._failure = (number, topic, known, error)

    def _raise_failure(self) -> None:
        failure = self.failure()
        if failure is not None:
            raise failure
