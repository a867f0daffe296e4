"""Reading topics as a member of a consumer group: partitions are shared with the others, and places remembered."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from tidelog.client.connect import knock, settings
from tidelog.client.consumer import POLL_RECORDS, READING, Message, at_end, partitions_of, plain
from tidelog.client.errors import ClientError
from tidelog.client.offline import Offline
from tidelog.client.offline_watch import LOOK_AFTER_S, LOOK_EVERY_S, OfflineWatch, refuse, unavailable
from tidelog.wire.topic_partition import TopicPartition


def read_as_member(
    bootstrap: str,
    topics: Sequence[str],
    group: str,
    *,
    reset: str = "earliest",
    count: int | None = None,
    stop_at_end: bool = False,
    poll_s: float = 0.2,
    idle: Callable[[], None] = lambda: None,
    offline: Callable[[Offline], None] = refuse,
    waits: Callable[[ClientError], None] = lambda why: None,
    **more: Any,
) -> Generator[Message]:
    """The records of the partitions that the group gives to this member, from where the group stopped.

    A record counts as consumed when the next one is asked for; its offset is committed in the background, and at the
    end. `reset` is where to begin in partitions without a commit: earliest or latest. `idle`
    and `offline` as in `read`; `waits` is told why the group can't be joined yet, which is an error with `stop_at_end`.
    """
    knock(bootstrap)
    fixed: dict[str, Any] = {
        "group_id": group,
        "enable_auto_commit": True,
        "enable_auto_offset_store": False,
        "auto_offset_reset": reset,
        **READING,
    }
    member = _Member(Consumer(settings(bootstrap, **fixed, **more)), bootstrap, group)
    offline_watch = OfflineWatch(bootstrap, topics, offline)
    try:
        for topic in topics:
            partitions_of(member.consumer, bootstrap, topic)  # a topic that isn't there is an error, not a long wait
        yield from member.run(
            list(topics), offline_watch, count, stop_at_end, poll_s, lambda: (member.wait(waits, stop_at_end), idle())
        )
    finally:
        member.consumer.close()


class _Member:
    def __init__(self, consumer: Consumer, bootstrap: str, group: str) -> None:
        self.consumer = consumer
        self._bootstrap = bootstrap
        self._group = group
        self._joined = False
        self._look_at = time.monotonic() + LOOK_AFTER_S
        self._unread: set[TopicPartition] = set()
        """Partitions of ours whose end wasn't reached yet."""

    def run(
        self,
        topics: list[str],
        offline_watch: OfflineWatch,
        count: int | None,
        stop_at_end: bool,
        poll_s: float,
        idle: Callable[[], object],
    ) -> Iterator[Message]:
        self.consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked)
        seen = 0
        while seen != count and not (stop_at_end and self._joined and not self._unread - offline_watch.places):
            wanted = POLL_RECORDS if count is None else min(POLL_RECORDS, count - seen)
            messages = self.consumer.consume(wanted, poll_s)
            for message in messages:
                if at_end(message, self._bootstrap):
                    self._unread.discard((message.topic() or "", message.partition() or 0))
                    continue
                seen += 1
                yield plain(message)
                self.consumer.store_offsets(message)
            if offline_watch.due:
                offline_watch.look()
            if not messages:
                idle()

    def wait(self, tell: Callable[[ClientError], None], stop_at_end: bool) -> None:
        """Where the group isn't joined after a while: why, as far as the brokers tell."""
        if self._joined or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_EVERY_S
        why = unavailable(self._bootstrap, self._group)
        if why is not None and stop_at_end:
            raise why
        if why is not None:
            tell(why)

    def _assigned(self, _: Consumer, partitions: list[ConfluentPartition]) -> None:
        self._joined = True
        self._unread |= {(each.topic, each.partition) for each in partitions}

    def _revoked(self, _: Consumer, partitions: list[ConfluentPartition]) -> None:
        self._unread -= {(each.topic, each.partition) for each in partitions}
