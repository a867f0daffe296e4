"""What a member writes down, one JSON object a line on standard output, and the orders it gets on standard input.

Times are of the monotonic clock, which all processes of a machine share, so the diaries of a band make one history.

Orders: `leave` (say goodbye and end), `hang SECONDS` (stand still in the middle of the work), `keep` (process, but
commit nothing from now on), `again` (commit all that was processed, as far as the member knows its own).
"""

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidelog.wire.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Options:
    """How to take part; handed over as JSON in the member's only argument."""

    client: str
    bootstrap: str
    group: str
    topic: str
    """A name, or a regular expression where it begins with ^."""
    assignor: str = "range"
    instance: str | None = None
    session_ms: int = 1500
    max_poll_ms: int = 20_000
    heartbeat_ms: int = 200
    metadata_ms: int = 500
    """How often topics are looked up: by it classic members notice new topics and partitions."""
    work_ms: float = 0.0
    """How long a record takes."""


class Diary:
    """The member's book, and what it processed but hasn't committed."""

    def __init__(self) -> None:
        self._orders: deque[list[str]] = deque()
        self.pending: dict[TopicPartition, int] = {}
        self.processed: dict[TopicPartition, int] = {}
        self.keeps = False
        threading.Thread(target=self._read_orders, daemon=True).start()

    def _read_orders(self) -> None:
        for line in sys.stdin:
            self._orders.append(line.split())
        os._exit(0)  # the story is over, or the one who told it is gone

    def order(self) -> list[str]:
        """The next order; `keep` and `hang` are dealt with here."""
        order = self._orders.popleft() if self._orders else []
        if order[:1] == ["keep"]:
            self.keeps = True
        if order[:1] == ["hang"]:
            self.tell("hangs")
            time.sleep(float(order[1]))
            self.tell("woke")
        if order[:1] == ["again"]:
            self.pending.update(self.processed)
        return order

    def tell(self, event: str, **more: Any) -> None:
        sys.stdout.write(json.dumps({"at": time.monotonic(), "event": event, **more}) + "\n")
        sys.stdout.flush()

    def assigned(self, places: Iterable[TopicPartition]) -> None:
        self.tell("assigned", places=sorted(places))

    def revoked(self, places: Iterable[TopicPartition], event: str = "revoked") -> None:
        """They are somebody else's from now on."""
        gone = sorted(places)
        for place in gone:
            self.pending.pop(place, None)
            self.processed.pop(place, None)
        self.tell(event, places=gone)

    def record(self, topic: str, partition: int, offset: int, work_ms: float) -> None:
        if work_ms:
            time.sleep(work_ms / 1000)
        self.tell("record", topic=topic, partition=partition, offset=offset)
        self.processed[topic, partition] = offset + 1
        if not self.keeps:
            self.pending[topic, partition] = offset + 1

    def committed(self, offsets: dict[TopicPartition, int], began: float) -> None:
        for place, offset in offsets.items():
            if self.pending.get(place) == offset:
                del self.pending[place]
        self.tell("committed", offsets=[[*place, offset] for place, offset in offsets.items()], began=began)

    def refused(self, offsets: dict[TopicPartition, int], began: float, error: str, *, again: bool) -> None:
        """A commit failed; `again`: it may go through later."""
        if not again:
            for place in offsets:
                self.pending.pop(place, None)
        places = [[*place, offset] for place, offset in offsets.items()]
        self.tell("refused", offsets=places, began=began, error=error)
