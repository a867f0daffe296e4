"""Where this broker's replicas are: the controller is told by AssignReplicasToDirs (KIP-858) where it has another word.

A broker with several data folders chooses one for each log, and only who knows which one can tell what is lost with a
folder. A replica whose log failed is in none: it is assigned to the lost directory, which is how a broker gives up one
partition and keeps the others. The controller takes it out of the ISR and has another replica lead. At the next start
the log is opened again, and its replica is assigned to where it is. A partition that has no other replica keeps its
place: nobody else could lead it, and clients are told why.

It is said again until the metadata has it so. Where that doesn't come about within `log.dir.failure.timeout.ms`, and
this broker leads a partition whose log failed, it gives up: it serves nobody there, and its end is how others come to
lead.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidelog.env.promise import Promise
from tidelog.env.slices import CHEAP_A_STEP, settled
from tidelog.log.memory import MemoryLog
from tidelog.metadata.directories import LOST_DIRECTORY
from tidelog.wire.errors import KafkaError, error_code
from tidelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.env import Loop
    from tidelog.env.loop import Timer
    from tidelog.env.slices import Steps
    from tidelog.log.store import Store
    from tidelog.metadata.follow import Follower
    from tidelog.wire.topic_partition import TopicPartition

log = logging.getLogger("tidelog.replica")

AGAIN_S = 0.2
"""Until it is said again what the metadata doesn't have yet; twice as long each time, while it has nothing of it."""
AGAIN_S_MAX = 10.0
PARTITIONS_MAX = 2000
"""As many are named in one request."""


class Directories:
    """`ids`: the directory ids of the data folders. `ask` asks the active controller; `broker_epoch` is this one's, and
    negative before it is registered."""

    def __init__(
        self,
        loop: Loop,
        node_id: int,
        store: Store,
        metadata: Follower,
        ids: Mapping[str, bytes],
        ask: Callable[[AssignReplicasToDirsRequest], Promise[Any]],
        broker_epoch: Callable[[], int],
        *,
        failure_timeout_ms: int,
        give_up: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._node_id = node_id
        self._store = store
        self._metadata = metadata
        self._ids = ids
        self._ask = ask
        self._broker_epoch = broker_epoch
        self._wanted: dict[TopicPartition, None] = {}
        self._planned = False
        self._round: Promise[None] = Promise()  # until the next answer
        self._again_s = AGAIN_S
        self._failure_timeout_s = failure_timeout_ms / 1000
        self._give_up = give_up
        self._failures: Timer | None = None  # the controller is to have heard by then of logs that failed
        store.on_offline.append(lambda failed: self.look((failed.topic, failed.partition)))

    def look(self, key: TopicPartition) -> None:
        """Its log was opened, or failed, or the metadata says something else of it."""
        if key not in self._wanted and self._due(key) is not None:
            self._wanted[key] = None
            self._plan()
            self._expect_to_be_heard()

    def stop(self) -> None:
        """Nobody waits any more for what the controller makes of it."""
        if self._failures is not None:
            self._failures.cancel()
        self._wanted.clear()

    def tell(self, found: Iterable[TopicPartition]) -> Promise[None]:
        """The broker is registered: tell of those that a start found, before it is let in, since who comes to lead is
        decided then. Done when the controller has it, or was asked for it; it never fails."""
        return self._loop.spread(self._tell(found))

    def _tell(self, found: Iterable[TopicPartition]) -> Steps[None]:
        for count, key in enumerate(found, 1):
            self.look(key)
            if not count % CHEAP_A_STEP:
                yield
        for _ in range(len(self._wanted) // PARTITIONS_MAX + 2):
            if self._wanted:
                self._plan()
                yield from settled(self._round)

    def _due(self, key: TopicPartition) -> bytes | None:
        """The directory that the controller is to hear of; None where there is nothing to tell."""
        partition = self._metadata.image.partition(*key)
        if partition is None or not partition.directories or self._node_id not in partition.replicas:
            return None
        known = partition.directories[partition.replicas.index(self._node_id)]
        actual = self._actual(key, alone=len(partition.replicas) == 1)
        return None if actual == known else actual

    def _actual(self, key: TopicPartition, *, alone: bool) -> bytes | None:
        if key in self._store.offline:
            return None if alone else LOST_DIRECTORY
        opened = self._store.opened(*key)
        if isinstance(opened, MemoryLog):
            return None
        root = opened.root if opened is not None else self._store.found_in(*key)
        return None if root is None else self._ids.get(root)

    # -- logs that failed, and a controller that isn't told

    def _expect_to_be_heard(self) -> None:
        if self._failures is None and self._unheard():
            self._failures = self._loop.call_later(self._failure_timeout_s, self._look_who_heard, self._unheard())

    def _unheard(self) -> set[TopicPartition]:
        """Led here by the metadata, with a log that failed."""
        image = self._metadata.image
        return {
            key
            for key in self._wanted
            if self._due(key) == LOST_DIRECTORY
            and (partition := image.partition(*key)) is not None
            and partition.leader == self._node_id
        }

    def _look_who_heard(self, expected: set[TopicPartition]) -> None:
        self._failures = None
        late = expected & self._unheard()
        if late:
            topic, index = min(late)
            self._give_up(
                f"the log of {topic}-{index} failed, which this broker leads, and the controller could not be told "
                f"within {self._failure_timeout_s:g} s (log.dir.failure.timeout.ms)"
            )
        else:
            self._expect_to_be_heard()

    # -- asking, one request at a time

    def _plan(self, delay_s: float = 0.0) -> None:
        if self._wanted and not self._planned and self._broker_epoch() >= 0:
            self._planned = True
            self._loop.call_later(delay_s, self._go_on)

    def _go_on(self) -> None:
        due = {key: directory for key in self._wanted if (directory := self._due(key)) is not None}
        if len(due) < len(self._wanted):
            self._again_s = AGAIN_S
        self._wanted = dict.fromkeys(due)
        if due:
            self._ask(self._request(dict(islice(due.items(), PARTITIONS_MAX)))).on_done(self._answered)
        else:
            self._planned = False
            self._end_round()

    def _end_round(self) -> None:
        ended, self._round = self._round, Promise()
        ended.resolve(None)

    def _request(self, due: Mapping[TopicPartition, bytes]) -> AssignReplicasToDirsRequest:
        topics = self._metadata.image.topics
        directories: dict[bytes, dict[str, TopicData]] = {}
        for (name, index), directory in due.items():
            of = directories.setdefault(directory, {})
            data = of.setdefault(name, TopicData(topic_id=topics[name].id))
            data.partitions.append(PartitionData(partition_index=index))
            if directory == LOST_DIRECTORY:
                log.warning(
                    "the log of %s-%d failed: the controller is asked to have another replica lead", name, index
                )
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[DirectoryData(id=id, topics=list(of.values())) for id, of in directories.items()],
        )

    def _answered(self, promise: Promise[Any]) -> None:
        """What was decided comes by the metadata, and counts from then on; until then it is wanted still."""
        self._planned = False
        error = promise.error
        if error is None and promise.result().error_code:
            error = KafkaError(error_code(promise.result().error_code))
        if error is not None:
            log.warning("the controller doesn't take where replicas of this broker are; it is told again: %s", error)
        self._plan(self._again_s)
        self._again_s = min(2 * self._again_s, AGAIN_S_MAX)
        self._end_round()
