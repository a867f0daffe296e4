"""How far a group is behind: in messages, and in time, which is the age of the first record that it hasn't consumed."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as ConfluentPartition

from tidelog.client.connect import REQUEST_TIMEOUT_S, settings
from tidelog.wire.topic_partition import TopicPartition

POLL_S = 0.1
FETCHED_BYTES = 16 * 1024

Unread = tuple[TopicPartition, int]
"""A partition, and the offset from which on it isn't consumed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group has come in one partition."""

    topic: str
    partition: int
    committed: int | None
    start: int | None = None
    stable_end: int | None = None
    """Up to where readers of committed records read: where the first transaction begins that is open."""
    end: int | None = None
    """None where it can't be told: the partition is gone, or has no leader."""
    gone: bool = False
    behind_ms: int | None = None
    """How long ago the first record that isn't consumed yet was written; 0 where there is none, None where unknown."""

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def begins(self) -> int | None:
        """Where consumers go on. Without a commit `auto.offset.reset` decides, which brokers aren't told: then all
        that is there may be to come. What was deleted can't be consumed any more."""
        if self.start is None or self.end is None or self.beyond_end:
            return None
        return self.start if self.committed is None else max(self.committed, self.start)

    @property
    def beyond_end(self) -> bool:
        """The log began anew, or lost its end: `auto.offset.reset` decides here, too."""
        return self.committed is not None and self.end is not None and self.committed > self.end

    @property
    def lag(self) -> int | None:
        """Messages up to the end; None where it is unknown."""
        return None if self.begins is None or self.end is None else self.end - self.begins

    @property
    def behind_open_transaction(self) -> int | None:
        """How many of them stand behind a transaction that is open: readers of committed records wait for it."""
        if self.begins is None or self.end is None or self.stable_end is None:
            return None
        return self.end - min(max(self.stable_end, self.begins), self.end)


@dataclass(frozen=True, slots=True)
class Lag:
    """Of a whole group. None is unknown."""

    messages: int | None
    behind_ms: int | None
    behind_open_transactions: int | None
    uncommitted: int
    """In how many partitions nothing is committed: they count from their start."""
    beyond_end: int = 0
    """In how many partitions an offset is committed that is beyond their end: their lag is unknown."""

    @classmethod
    def of(cls, progress: Sequence[Progress]) -> "Lag":
        """Partitions that are gone have nothing to consume. Of none at all nothing is known."""
        there = [each for each in progress if not each.gone]
        if not progress:
            return cls(None, None, None, 0)
        ages = _known([each.behind_ms for each in there])
        return cls(
            messages=_total([each.lag for each in there]),
            behind_ms=None if ages is None else max(ages, default=0),
            behind_open_transactions=_total([each.behind_open_transaction for each in there]),
            uncommitted=sum(each.committed is None for each in there),
            beyond_end=sum(each.beyond_end for each in there),
        )


def first_unread_ms(bootstrap: str, unread: Iterable[Unread]) -> dict[Unread, int]:
    """Milliseconds, at least 1, since the record at (or after) each of these offsets was written.

    0 where there is none up to the end: markers of transactions have offsets, too. Those that did not come in time are
    left out. What is in a transaction that is open counts: it is there, and waits.
    """
    rounds: list[dict[TopicPartition, int]] = []
    for place, offset in sorted(set(unread)):
        into = next((each for each in rounds if place not in each), None)
        if into is None:
            rounds.append(into := {})
        into[place] = offset
    ages: dict[Unread, int] = {}
    for places in rounds:
        ages_ms = _first_ages_ms(bootstrap, places)
        ages |= {(place, places[place]): age_ms for place, age_ms in ages_ms.items()}
    return ages


def _first_ages_ms(bootstrap: str, places: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Small fetches: a few bytes bring the first batches of many partitions at once, what lies behind costs little.

    A batch that is larger comes when its partition is the first of a fetch; the library takes turns.
    """
    reader = Consumer(
        settings(
            bootstrap,
            group_id="tidelog",  # the library wants one; without commits and subscriptions it is never used
            enable_auto_commit=False,
            enable_partition_eof=True,
            isolation_level="read_uncommitted",
            auto_offset_reset="earliest",
            fetch_message_max_bytes=FETCHED_BYTES,
            queued_min_messages=1,
            fetch_wait_max_ms=100,
        )
    )
    ages_ms: dict[TopicPartition, int] = {}
    left = set(places)
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    try:
        reader.assign([ConfluentPartition(*place, offset) for place, offset in places.items()])
        while left and time.monotonic() < deadline:
            for message in reader.consume(1000, POLL_S):
                place = (message.topic() or "", message.partition() or 0)
                if place in left and _is_an_answer(message, ages_ms):
                    left.discard(place)
                    reader.pause([ConfluentPartition(*place)])
    finally:
        reader.close()
    return ages_ms


def _is_an_answer(message: Message, ages_ms: dict[TopicPartition, int]) -> bool:
    place = (message.topic() or "", message.partition() or 0)
    error = message.error()
    if error is not None:
        at_end = error.code() == KafkaError._PARTITION_EOF
        if at_end:
            ages_ms[place] = 0
        return at_end
    kind, written_ms = message.timestamp()
    if kind != TIMESTAMP_NOT_AVAILABLE:
        ages_ms[place] = max(int(time.time() * 1000) - written_ms, 1)
    return True


def _known(values: Iterable[int | None]) -> list[int] | None:
    """All of them, or None where one is unknown."""
    known: list[int] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return known


def _total(values: Iterable[int | None]) -> int | None:
    known = _known(values)
    return None if known is None else sum(known)
