"""Reading partitions of topics from any place, without a group: for tools, tests and one-off jobs."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
)
from confluent_kafka import Message as KafkaMessage
from confluent_kafka import (
    TopicPartition as ConfluentPartition,
)

from tidelog.client.connect import MESSAGE_BYTES_MAX, REQUEST_TIMEOUT_S, knock, settings
from tidelog.client.errors import ClientError, from_kafka
from tidelog.client.offline import Offline
from tidelog.client.offline_watch import OfflineWatch, refuse
from tidelog.client.start import Start
from tidelog.wire.topic_partition import TopicPartition

POLL_RECORDS = 1000
READING: dict[str, Any] = {
    "enable_partition_eof": True,
    "check_crcs": True,
    "receive_message_max_bytes": MESSAGE_BYTES_MAX,
    "fetch_wait_max_ms": 100,
}


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
    topic: str | Sequence[str],
    *,
    start: Start | None = None,
    partitions: list[int] | None = None,
    count: int | None = None,
    stop_at_end: bool = False,
    poll_s: float = 0.2,
    idle: Callable[[], None] = lambda: None,
    offline: Callable[[Offline], None] = refuse,
    **more: Any,
) -> Generator[Message]:
    """The records of topics from `start` (their beginning): until `count`, until the end, or for ever.

    `stop_at_end` stops each partition where it ended when reading began. `idle` is called when none came for `poll_s`.
    `offline` is told partitions that can't be read; where it raises nothing, the others are. `more` are librdkafka's
    settings.
    """
    topics = [topic] if isinstance(topic, str) else list(topic)
    reading = _Reading(bootstrap, topics, OfflineWatch(bootstrap, topics, offline), more)
    try:
        yield from reading.run(start or Start("beginning"), partitions, count, stop_at_end, poll_s, idle)
    finally:
        reading.consumer.close()


class _Reading:
    def __init__(self, bootstrap: str, topics: list[str], offline_watch: OfflineWatch, more: dict[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        self._offline_watch = offline_watch
        knock(bootstrap)
        fixed: dict[str, Any] = {
            "group_id": "tidelog",  # the library wants one; without commits and subscriptions it is never used
            "enable_auto_commit": False,
            "auto_offset_reset": "error",
            **READING,
        }
        self.consumer = Consumer(settings(bootstrap, **fixed, **more))

    def run(
        self,
        start: Start,
        chosen: list[int] | None,
        count: int | None,
        stop_at_end: bool,
        poll_s: float,
        idle: Callable[[], None],
    ) -> Iterator[Message]:
        there = [(topic, partition) for topic in self._topics for partition in self._partitions(topic, chosen)]
        self._offline_watch.look(chosen)
        if stop_at_end or start.kind in ("last", "time"):
            there = [place for place in there if place not in self._offline_watch.places]
        ends = {place: self._range(place)[1] for place in there} if stop_at_end else {}
        places = self._places(start, there)
        left = {(at.topic, at.partition) for at in places if ends.get((at.topic, at.partition), -1) != at.offset}
        self.consumer.assign(places)
        seen = 0
        while (left - self._offline_watch.places or not stop_at_end) and seen != count:
            wanted = POLL_RECORDS if count is None else min(POLL_RECORDS, count - seen)
            messages = self.consumer.consume(wanted, poll_s)
            for message in messages:
                place = (message.topic() or "", message.partition() or 0)
                if self._at_end(message):
                    left.discard(place)
                elif not stop_at_end or (message.offset() or 0) < ends[place]:
                    seen += 1
                    yield plain(message)
                    if stop_at_end and (message.offset() or 0) >= ends[place] - 1:
                        left.discard(place)
                else:
                    left.discard(place)
            if self._offline_watch.due:
                self._offline_watch.look(chosen)
            if not messages:
                idle()

    def _partitions(self, topic: str, chosen: list[int] | None) -> list[int]:
        there = partitions_of(self.consumer, self._bootstrap, topic)
        for partition in chosen or ():
            if partition not in there:
                raise ClientError(f"{topic} has no partition {partition}: it has {len(there)}, numbered from 0")
        return chosen or there

    def _places(self, start: Start, there: list[TopicPartition]) -> list[ConfluentPartition]:
        if start.kind == "time":
            asked = [ConfluentPartition(*place, start.value) for place in there]
            try:
                return self.consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
            except KafkaException as error:
                raise from_kafka(error, self._bootstrap, f"find a time in {', '.join(self._topics)}") from None
        return [ConfluentPartition(*place, self._offset(start, place)) for place in there]

    def _offset(self, start: Start, place: TopicPartition) -> int:
        if start.kind == "beginning":
            return OFFSET_BEGINNING
        if start.kind == "end":
            return OFFSET_END
        low, high = self._range(place)
        return max(low, high - start.value) if start.kind == "last" else start.value

    def _range(self, place: TopicPartition) -> tuple[int, int]:
        try:
            return self.consumer.get_watermark_offsets(ConfluentPartition(*place), timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise from_kafka(error, self._bootstrap, f"read {place[0]}") from None

    def _at_end(self, message: KafkaMessage) -> bool:
        """Whether this is the library's word that a partition was read to its end; raises on real errors."""
        error = message.error()
        if error is not None and error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            topic, partition = message.topic() or "", message.partition() or 0
            low, high = self._range((topic, partition))
            raise ClientError(
                f"{topic}-{partition} holds the offsets {low} to {high}, not the one to start from",
                "use --from beginning, --from end or an offset in between",
            )
        return at_end(message, self._bootstrap)


def partitions_of(consumer: Consumer, bootstrap: str, topic: str) -> list[int]:
    try:
        metadata = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise from_kafka(error, bootstrap, f"read {topic}") from None
    if metadata.error is not None:
        raise from_kafka(metadata.error, bootstrap, f"read {topic}")
    return sorted(metadata.partitions)


def at_end(message: KafkaMessage, bootstrap: str) -> bool:
    """Whether this is the library's word that a partition was read to its end; raises on real errors."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if error.code() == KafkaError._BAD_MSG:
        raise ClientError(
            f"cannot read {message.topic()}-{message.partition()}: {error.str()}",
            "a batch is damaged, on the broker's disk or on the way: `tidelog log dump` of the segment shows where",
        )
    raise from_kafka(error, bootstrap, f"read {message.topic() or 'the topic'}")


def plain(message: KafkaMessage) -> Message:
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
