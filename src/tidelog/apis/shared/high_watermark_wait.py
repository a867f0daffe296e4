"""What a partition had been written when a request came, and doesn't show yet.

With acks=1 a producer is answered before the sync that lets others see its record. Whoever asks for the end of the log
next, or deletes up to there, must find what was said to be written: where this broker has the only replica, it waits
for its own sync. Where there are several, the high watermark answers, as in Kafka. A wait ends for every reason why
there is nothing to wait for any more (another leader, a deleted topic, a log that went offline), and with the request's
time; then it is looked at what there is.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.apis.bounds import HIGH_WATERMARK_WAIT_MS_MAX
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps, settled
from tidelog.wire.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.apis.shared.context import Services
    from tidelog.replica.partition import Partition
    from tidelog.wire.errors import ErrorCode


class Written:
    """Of one request, which says when it is `done`. It waits no longer than `timeout_ms` in all (0 or less: as long as
    anybody does)."""

    __slots__ = ("_ends", "_over", "_services", "_timed", "_timeout_ms", "_waiting", "done")

    def __init__(self, services: Services, timeout_ms: int) -> None:
        self._services = services
        self._timeout_ms = min(timeout_ms, HIGH_WATERMARK_WAIT_MS_MAX) if timeout_ms > 0 else HIGH_WATERMARK_WAIT_MS_MAX
        self._ends: dict[TopicPartition, tuple[Partition, int]] = {}
        self._waiting: Promise[None] | None = None
        self._timed = False
        self._over = False
        self.done = False

    def note(self, topic: str, index: int) -> None:
        """The request has to do with this partition."""
        partition = self._services.replicas.opened((topic, index))
        if partition is not None and partition.is_alone and partition.high_watermark < partition.log.log_end:
            self._ends[topic, index] = partition, partition.log.log_end

    def unshown(self, topic: str, index: int) -> bool:
        """Whether the partition doesn't show yet what was written when the request came."""
        noted = self._ends.get((topic, index))
        return noted is not None and noted[0].high_watermark < noted[1] and not noted[0].deleted

    def wait(self, topic: str, index: int, look: Callable[[], object]) -> Steps[None]:
        """Until the partition shows it, or the time is over. Whatever happens to the partition meanwhile, `look` is
        called, which raises where there is nothing to wait for."""
        look()
        while self.unshown(topic, index) and not self._over:
            partition, end = self._ends[topic, index]
            if not self._timed:
                self._timed = True
                self._services.deadlines.add(self._timeout_ms, self)
            waiting = self._waiting = Promise[None]()
            partition.wait_for_ack(end, partial(_tell, waiting), self)
            yield from settled(waiting)
            look()

    def expire(self) -> None:
        self._over = True
        if self._waiting is not None and not self._waiting.done:
            self._waiting.resolve(None)


def _tell(waiting: Promise[None], _: ErrorCode) -> None:
    if not waiting.done:
        waiting.resolve(None)
