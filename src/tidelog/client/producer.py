"""Sending records, with a bounded queue and a count of what was acknowledged."""

from types import TracebackType
from typing import Any, TypeAlias, cast

from confluent_kafka import KafkaError, Message
from confluent_kafka import Producer as KafkaProducer

from tidelog.client.connect import MESSAGE_BYTES_MAX, knock, settings
from tidelog.client.errors import ClientError, from_kafka

Headers: TypeAlias = list[tuple[str, bytes | None]]


class Producer:
    """Sends records in the background; `flush`, or leaving the `with` block, waits until all are acknowledged.

    The first record that fails raises ClientError from the next call; `written` and `written_bytes` count the rest.
    """

    def __init__(self, bootstrap: str, **more: Any) -> None:
        """`more` are librdkafka's settings with underscores for dots, as in `compression_type="zstd"`."""
        self._bootstrap = bootstrap
        knock(bootstrap)
        merged = {"message_max_bytes": MESSAGE_BYTES_MAX, "linger_ms": 5, **more}
        self._producer = KafkaProducer(settings(bootstrap, **merged))
        self._failure: ClientError | None = None
        self.written = 0
        self.written_bytes = 0
        self.last_offsets: dict[int, int] = {}

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        """Queue one record; waits while the queue is full. Timestamp 0 is now, partition -1 the key's."""
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    self._delivered,
                    timestamp=timestamp_ms,
                    headers=cast(Any, headers or []),
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                break
        self._producer.poll(0)
        self._raise_failure()

    def flush(self) -> None:
        while self._producer.flush(1.0):
            self._raise_failure()
        self._raise_failure()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or from_kafka(error, self._bootstrap, f"write to {message.topic()}")
            return
        self.written += 1
        self.written_bytes += len(message)
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            self.last_offsets[partition] = max(offset, self.last_offsets.get(partition, -1))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
