"""The shards of one internal topic: loaded when this broker comes to lead a partition, unloaded when it no longer does.

A partition is loaded when one of its keys is first asked for, at once where its log is small; the others follow in the
background, one chunk a turn of the loop, whoever is asked for first. Its states stand in `shard_states`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from tidelog.coordinator.bounds import CHUNKS_AT_ONCE
from tidelog.coordinator.loading import Loading
from tidelog.coordinator.placement import partition_of
from tidelog.coordinator.shard import Kind, Shard
from tidelog.coordinator.shard_states import ShardState, Slot
from tidelog.replica.replicas import NotOpenYet
from tidelog.wire.errors import ErrorCode, KafkaError, MalformedError

if TYPE_CHECKING:
    from tidelog.env import Environment
    from tidelog.env.promise import Promise
    from tidelog.metadata.follow import ChangedTopics, Follower
    from tidelog.metadata.image import ClusterImage
    from tidelog.replica.replicas import Replicas

S = TypeVar("S")
L = TypeVar("L")

log = logging.getLogger("tidelog.coordinator")

AGAIN_S, AGAIN_S_MAX = 0.1, 10.0
"""What couldn't be read is tried again after the first, then after twice as long, and so on up to the second."""


@dataclass(frozen=True, slots=True)
class LateKind(Generic[S, L]):
    """A kind whose parts are imported when the first shard needs them: a broker without groups starts without."""

    topic: str
    make: Callable[[], Kind[S, L]]


class Shards(Generic[S, L]):
    """Every shard that this broker leads, by partition. `on_load` and `on_unload` are told of each."""

    def __init__(
        self,
        kind: Kind[S, L] | LateKind[S, L],
        node_id: int,
        env: Environment,
        replicas: Replicas,
        metadata: Follower,
    ) -> None:
        self.topic = kind.topic
        self._kind = kind
        self.on_load: list[Callable[[Shard[S, L]], None]] = []
        self.on_unload: list[Callable[[Shard[S, L]], None]] = []
        self._node_id = node_id
        self._env = env
        self._replicas = replicas
        self._metadata = metadata
        self._slots: dict[int, Slot[S, L]] = {}
        self._queue: deque[int] = deque()
        """Those that are to be loaded, or read on; the first has the next turn."""
        self._working = False
        self._in_background = False
        self._closed = False
        metadata.subscribe(self._image_changed)

    @property
    def kind(self) -> Kind[S, L]:
        if isinstance(self._kind, LateKind):
            self._kind = self._kind.make()
        return self._kind

    # -- asking

    @property
    def partitions(self) -> int:
        """How many partitions the topic has; 0 where it isn't there yet."""
        topic = self._metadata.image.topics.get(self.topic)
        return 0 if topic is None else len(topic.partitions)

    def of(self, key: str) -> Shard[S, L]:
        """The shard that holds the state of `key`.

        Raises COORDINATOR_NOT_AVAILABLE where the topic isn't there yet, NOT_COORDINATOR where another broker leads,
        COORDINATOR_LOAD_IN_PROGRESS while the log is being read.
        """
        count = self.partitions
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} isn't there yet")
        return self.at(partition_of(key, count))

    def at(self, index: int) -> Shard[S, L]:
        """The shard of a partition; raises as `of` does."""
        slot = self.slot(index)
        shard = slot.shard
        if shard is None:
            shard = self._load_first(slot)
        if slot.state is not ShardState.LEADING:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{index} can't be used: see the log")
        return shard

    def slot(self, index: int) -> Slot[S, L]:
        """Where a partition stands."""
        slot = self._slots.get(index)
        if slot is None:
            slot = self._slots[index] = Slot(index)
        return slot

    def loaded(self) -> Iterator[Shard[S, L]]:
        """Those that decide now."""
        return (
            slot.shard
            for slot in list(self._slots.values())
            if slot.state is ShardState.LEADING and slot.shard is not None
        )

    def all(self) -> Iterator[Shard[S, L]]:
        """Every shard led here; raises COORDINATOR_LOAD_IN_PROGRESS where one is still being read."""
        for index in self._led():
            try:
                yield self.at(index)
            except KafkaError as error:
                if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    raise

    def load_rest(self) -> None:
        """Load, in the background, what nobody asked for; from now on also what this broker comes to lead."""
        if not self._in_background and isinstance(self._kind, LateKind):
            # Importing takes some tens of milliseconds, which the loop needn't wait for.
            self._env.loop.run_blocking(self._kind.make).on_done(self._import_done)
        else:
            self._load(self._led())
        self._in_background = True

    def _load(self, some: Iterable[int]) -> None:
        self._queue += [index for index in some if self.slot(index).known is None]
        self._work_later()

    def _import_done(self, promise: Promise[Kind[S, L]]) -> None:
        if isinstance(self._kind, LateKind):
            self._kind = promise.result()
        self.load_rest()

    def close(self) -> None:
        """The broker stops: nothing is decided any more, and no timer fires."""
        self._closed = True
        for index in list(self._slots):
            self.unload(index)

    # -- loading

    def _led(self) -> list[int]:
        topic = self._metadata.image.topics.get(self.topic)
        partitions = () if topic is None else topic.partitions
        return [index for index, image in enumerate(partitions) if image.leader == self._node_id]

    def _load_first(self, slot: Slot[S, L]) -> Shard[S, L]:
        """The shard, if it can be read at once; else it goes to the front of those that are being read."""
        if slot.state in (ShardState.ABSENT, ShardState.OPENING):
            self._open(slot)
            for _ in range(CHUNKS_AT_ONCE):
                if not self._step(slot):
                    break
        if slot.shard is not None:
            return slot.shard
        if slot.state is ShardState.RESTING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{slot.index} is loaded again soon")
        self._queue.appendleft(slot.index)
        self._work_later()
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _open(self, slot: Slot[S, L]) -> None:
        """Begin to load; NOT_COORDINATOR where another broker leads, or the log can't be used."""
        index = slot.index
        if self._closed or not self._leads(index):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        try:
            partition = self._replicas.get(self.topic, index)
            partition.check_leader()
        except NotOpenYet as not_yet:
            if slot.state is ShardState.ABSENT:
                slot.to(ShardState.OPENING)
            not_yet.opened.on_done(partial(self._log_opened, slot))
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, not_yet.message) from not_yet
        except KafkaError as error:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from error
        shard = Shard(self.kind, partition, self._env, self._failed)
        slot.to(ShardState.READING, loading=Loading(self.kind, shard))

    def _leads(self, index: int) -> bool:
        """Whether this broker leads the partition, by the image."""
        image = self._metadata.image.partition(self.topic, index)
        return image is not None and image.leader == self._node_id

    def _log_opened(self, slot: Slot[S, L], opened: Promise[None]) -> None:
        """Load it, where it was waited for; one that couldn't be opened is tried again."""
        if slot.state is not ShardState.OPENING:
            return
        if opened.error is not None:
            self._rest(slot)
        else:
            slot.to(ShardState.ABSENT)
            self._queue.append(slot.index)
            self._work_later()

    def _rest(self, slot: Slot[S, L]) -> None:
        """What kept it from being loaded may pass: try again after a while, which is longer each time."""
        if self._closed:
            slot.to(ShardState.ABSENT)
            return
        slot.rest_s = min(2 * (slot.rest_s or AGAIN_S / 2), AGAIN_S_MAX)
        slot.to(ShardState.RESTING)
        self._env.loop.call_later(slot.rest_s, self._load_again, slot)

    def _load_again(self, slot: Slot[S, L]) -> None:
        if slot.state is not ShardState.RESTING:
            return
        slot.to(ShardState.ABSENT)
        if self._leads(slot.index):
            self._queue.append(slot.index)
            self._work_later()

    def _work_later(self) -> None:
        if not self._working:
            self._working = True
            self._env.loop.call_soon(self._work)

    def _work(self) -> None:
        """One chunk a turn, of whoever is first; a log is opened, and recovered perhaps, in a turn of its own."""
        self._working = False
        while self._queue and not self._closed:
            slot = self.slot(self._queue[0])
            if slot.state is ShardState.READING:
                if self._step(slot):
                    break
            elif slot.state in (ShardState.ABSENT, ShardState.OPENING):
                try:
                    self._open(slot)
                    break
                except KafkaError as error:
                    if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # else it comes again by itself
                        log.warning("%s-%d is not loaded: %s", self.topic, slot.index, error)
            self._queue.popleft()
        if self._queue and not self._closed:
            self._work_later()

    def _step(self, slot: Slot[S, L]) -> bool:
        """Read a chunk; whether there is more to read."""
        loading, index = slot.loading, slot.index
        assert loading is not None
        shard = loading.shard
        try:
            if not loading.step():
                return True
        except (KafkaError, OSError) as error:
            log.error("%s-%d can't be read, its keys have no coordinator for now: %s", self.topic, index, error)
            self._give_up(slot, shard)
            return False
        except Exception as error:
            known = isinstance(error, MalformedError)
            log.error(
                "%s-%d can't be loaded, its keys have no coordinator: %s",
                self.topic,
                index,
                error,
                exc_info=None if known else error,
            )
            slot.to(ShardState.BROKEN, shard=shard)
            return False

        def committed(code: ErrorCode) -> None:
            if slot.loading is not loading:
                return
            if code is ErrorCode.NONE:
                self._begin(slot, shard)
            else:  # whoever asks again hears why, or has it loaded again
                log.error("%s-%d was read, but can't be led: %s", self.topic, index, code.name)
                self._give_up(slot, shard)

        slot.to(ShardState.READ, loading=loading)
        shard.partition.wait_for_ack(shard.partition.log.log_end, committed)
        return False

    def _give_up(self, slot: Slot[S, L], shard: Shard[S, L]) -> None:
        """It couldn't be loaded: again after a while, unless its log is gone for good."""
        if shard.partition.log.offline is None:
            self._rest(slot)
        else:
            slot.to(ShardState.ABSENT)

    def _begin(self, slot: Slot[S, L], shard: Shard[S, L]) -> None:
        slot.rest_s = 0.0
        shard.machine.lead(shard.epoch)
        shard.live = self.kind.make_live(shard)
        slot.to(ShardState.LEADING, shard=shard)
        for listener in self.on_load:
            listener(shard)

    # -- unloading

    def _failed(self, shard: Shard[S, L]) -> None:
        """Its log went offline, or its leadership ended: nothing more is decided. Who waits is told to look again."""
        slot = self.slot(shard.index)
        if slot.shard is shard and slot.state is ShardState.LEADING:
            slot.to(ShardState.BROKEN, shard=shard)
            self._stop(shard)

    def unload(self, index: int) -> None:
        """Let go of a partition; whoever asks next has it loaded again, where this broker leads it."""
        slot = self.slot(index)
        state, shard = slot.state, slot.shard
        if state is not ShardState.ABSENT:
            slot.to(ShardState.ABSENT)
        if state is ShardState.LEADING and shard is not None:
            self._stop(shard)

    def _stop(self, shard: Shard[S, L]) -> None:
        shard.machine.unload()
        for listener in self.on_unload:
            listener(shard)

    def _image_changed(
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed: set[tuple[int, str]]
    ) -> None:
        before, after = old.topics.get(self.topic), new.topics.get(self.topic)
        if before is after:
            return
        if before is not None and after is not None and before.id == after.id:
            changed_ones = sorted(changed_topics.get(after.id, ()))
        else:
            changed_ones = sorted({*self._slots, *range(0 if after is None else len(after.partitions))})
        for index in changed_ones:
            known = self._slots[index].known if index in self._slots else None
            if known is None:
                continue
            image = new.partition(self.topic, index)
            gone = after is None or after.id != known.partition.topic_id
            if gone or image is None or image.leader != self._node_id or image.leader_epoch != known.epoch:
                self.unload(index)
        if self._in_background:
            self._load(index for index in changed_ones if self._leads(index))

    def check_invariants(self) -> None:
        """What holds between any two events; for tests and simulation."""
        for index, slot in self._slots.items():
            assert slot.index == index
            slot.check_invariants()
            assert slot.state is ShardState.ABSENT or not self._closed
        assert self._working or self._closed or not self._queue, "nobody works the queue off"
