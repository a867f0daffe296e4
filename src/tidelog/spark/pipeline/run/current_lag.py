"""How far a pipeline is behind its topics now: Spark tells only what it saw when it planned its last micro-batch.

And what it can't have yet, since a transaction is open: also that is behind it. Asked about once a second by a thread,
so that brokers that are away keep nobody waiting.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from tidelog.rpc import LATEST, Cluster, list_offsets
from tidelog.rpc.errors import Lost, Unreachable
from tidelog.rpc.open_transactions import behind_ends
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.spark.pipeline.run.held_up import Held, held, reads_committed
from tidelog.wire.errors import KafkaError
from tidelog.wire.topic_partition import TopicPartition

ASK_S = 1.0
PATIENCE_S = 2.0
AWAY_S = 5.0
STANDING_S = 5.0


class Ends:
    """The ends of partitions as they were told last; `away` since when nobody answers, after some seconds of it."""

    def __init__(self, pipeline: Pipeline, tell: Callable[[str], None]) -> None:
        self.away: float | None = None
        self._pipeline = pipeline
        self._tell = tell
        self._seen: dict[Held, float] = {}  # what stands open, and since when it was seen to
        self._places: frozenset[TopicPartition] = frozenset()
        self._known: dict[TopicPartition, int] = {}
        self._answered = time.time()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()  # not waited for: it may be waiting for a broker

    def watch(self, places: Iterable[TopicPartition]) -> None:
        """Ask for these from now on."""
        self._places = frozenset(places)

    def behind(self, done: Mapping[TopicPartition, int]) -> int | None:
        """How many offsets are after those that are done; None where an end is not known."""
        if not done or any(place not in self._known for place in done):
            return None
        return sum(max(0, self._known[place] - offset) for place, offset in done.items())

    def ask_now(self) -> None:
        """Ask once more, for a last look: a run may be over before the thread has asked at all."""
        if self._places:
            with self._pipeline.reach(PATIENCE_S) as cluster:
                self._ask_once(cluster)

    @property
    def held_up(self) -> list[Held]:
        """Records behind transactions that are open for some seconds: shorter ones are somebody at work."""
        now = time.monotonic()
        return [each for each, seen in self._seen.items() if now - seen >= STANDING_S]

    def _ask(self) -> None:
        with self._pipeline.reach(PATIENCE_S) as cluster:
            while not self._over.wait(ASK_S if self.away is None else AWAY_S):
                if self._places:
                    self._ask_once(cluster)

    def _ask_once(self, cluster: Cluster) -> None:
        try:
            latest = list_offsets(cluster, dict.fromkeys(self._places, LATEST))
            ends = {place: each.offset for place, each in latest.items()}
            committed = {place: end for place, end in ends.items() if reads_committed(self._pipeline, place[0])}
            behind = [held(each) for each in behind_ends(cluster, committed)]
        except (KafkaError, Unreachable, Lost, OSError) as error:
            self._not_answered(error)
            return
        self._known = ends
        known = {each.key: seen for each, seen in self._seen.items()}
        self._seen = {each: known.get(each.key, time.monotonic()) for each in behind}
        self._answered = time.time()
        if self.away is not None:
            self._tell(f"{self._pipeline.name}: brokers answer again")
        self.away = None

    def _not_answered(self, error: Exception) -> None:
        if self.away is None and time.time() - self._answered > AWAY_S:
            self.away = self._answered
            self._tell(f"{self._pipeline.name}: waiting for brokers: {error}")
