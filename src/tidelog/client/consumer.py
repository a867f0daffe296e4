"""Reading a topic's partitions from any place, without a group: for tools, tests and one-off jobs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import Message as KafkaMessage

from tidelog.client.connect import MESSAGE_BYTES_MAX, REQUEST_TIMEOUT_S, knock, settings
from tidelog.client.errors import ClientError, from_kafka
from tidelog.client.start import Start

POLL_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """One record and where it stood."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str  # "create" or "append"
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def read(
    bootstrap: str,
    topic: str,
    *,
    start: Start | None = None,
    partitions: list[int] | None = None,
    count: int | None = None,
    stop_at_end: bool = False,
    poll_s: float = 0.2,
    **more: Any,
) -> Iterator[Message]:
    """The records of a topic from `start` (its beginning): until `count`, until the end, or for ever.

    `stop_at_end` stops each partition where it ended when reading began. `more` are librdkafka's settings.
    """
    reading = _Reading(bootstrap, topic, more)
    try:
        yield from reading.run(start or Start("beginning"), partitions, count, stop_at_end, poll_s)
    finally:
        reading.consumer.close()


class _Reading:
    def __init__(self, bootstrap: str, topic: str, more: dict[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        knock(bootstrap)
        fixed: dict[str, Any] = {
            "group_id": "tidelog",  # the library wants one; without commits and subscriptions it is never used
            "enable_auto_commit": False,
            "enable_partition_eof": True,
            "auto_offset_reset": "error",
            "receive_message_max_bytes": MESSAGE_BYTES_MAX,
            "fetch_wait_max_ms": 100,
        }
        self.consumer = Consumer(settings(bootstrap, **fixed, **more))

    def run(
        self, start: Start, chosen: list[int] | None, count: int | None, stop_at_end: bool, poll_s: float
    ) -> Iterator[Message]:
        partitions = self._partitions(chosen)
        ends = {partition: self._range(partition)[1] for partition in partitions} if stop_at_end else {}
        places = self._places(start, partitions)
        left = {place.partition for place in places if ends.get(place.partition, -1) != place.offset}
        self.consumer.assign(places)
        seen = 0
        while (left or not stop_at_end) and seen != count:
            wanted = POLL_RECORDS if count is None else min(POLL_RECORDS, count - seen)
            for message in self.consumer.consume(wanted, poll_s):
                partition = message.partition() or 0
                if self._at_end(message):
                    left.discard(partition)
                elif not stop_at_end or (message.offset() or 0) < ends[partition]:
                    seen += 1
                    yield _plain(message)
                    if stop_at_end and (message.offset() or 0) >= ends[partition] - 1:
                        left.discard(partition)
                else:
                    left.discard(partition)

    def _partitions(self, chosen: list[int] | None) -> list[int]:
        try:
            found = self.consumer.list_topics(self._topic, timeout=REQUEST_TIMEOUT_S).topics[self._topic]
        except KafkaException as error:
            raise from_kafka(error, self._bootstrap, f"read {self._topic}") from None
        if found.error is not None:
            raise from_kafka(found.error, self._bootstrap, f"read {self._topic}")
        there = sorted(found.partitions)
        for partition in chosen or ():
            if partition not in there:
                raise ClientError(f"{self._topic} has no partition {partition}: it has {len(there)}, numbered from 0")
        return chosen or there

    def _places(self, start: Start, partitions: list[int]) -> list[TopicPartition]:
        if start.kind == "time":
            asked = [TopicPartition(self._topic, partition, start.value) for partition in partitions]
            try:
                return self.consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
            except KafkaException as error:
                raise from_kafka(error, self._bootstrap, f"find a time in {self._topic}") from None
        return [TopicPartition(self._topic, partition, self._offset(start, partition)) for partition in partitions]

    def _offset(self, start: Start, partition: int) -> int:
        if start.kind == "beginning":
            return OFFSET_BEGINNING
        if start.kind == "end":
            return OFFSET_END
        low, high = self._range(partition)
        return max(low, high - start.value) if start.kind == "last" else start.value

    def _range(self, partition: int) -> tuple[int, int]:
        try:
            return self.consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), timeout=REQUEST_TIMEOUT_S
            )
        except KafkaException as error:
            raise from_kafka(error, self._bootstrap, f"read {self._topic}") from None

    def _at_end(self, message: KafkaMessage) -> bool:
        """Whether this is the library's word that a partition was read to its end; raises on real errors."""
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            partition = message.partition() or 0
            low, high = self._range(partition)
            raise ClientError(
                f"{self._topic}-{partition} holds the offsets {low} to {high}, not the one to start from",
                "use --from beginning, --from end or an offset in between",
            )
        raise from_kafka(error, self._bootstrap, f"read {self._topic}")


def _plain(message: KafkaMessage) -> Message:
    kind, timestamp_ms = message.timestamp()
    return Message(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=timestamp_ms,
        timestamp_type="create" if kind == TIMESTAMP_CREATE_TIME else "append",
        key=message.key(),
        value=message.value(),
        headers=cast(Any, message.headers()) or [],
    )
