"""What this broker copies: every partition that it has a replica of and another broker leads, whoever asks for it.

The metadata image says which ones; here each is given to the fetcher of its leader (`fetcher.py`), with its log opened
before. A new leader epoch begins anew. Where nobody leads, it waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING

from tidelog.metadata.broker_replicas import replicas_of
from tidelog.metadata.image import NO_LEADER
from tidelog.replica.fetcher import SOON_S, Fetcher
from tidelog.replica.replicas import NotOpenYet
from tidelog.rpc.peer import Peers
from tidelog.wire.errors import KafkaError

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps
    from tidelog.log.cutting import Cuts
    from tidelog.metadata.follow import ChangedTopics, Follower
    from tidelog.metadata.image import ClusterImage, TopicImage
    from tidelog.replica.partition import Partition
    from tidelog.replica.replicas import Replicas
    from tidelog.rpc.peer import Peer
    from tidelog.wire.topic_partition import TopicIdPartition

log = logging.getLogger("tidelog.replica")

LOOKS_A_STEP = 32
OPEN_AGAIN_S = 5.0
"""After this those are tried again whose logs couldn't be opened, for want of descriptors."""
ANSWERS_BYTES_MAX = 64 * 1024 * 1024
ANSWER_BYTES_MIN = 1024 * 1024
"""Of the answers of all leaders that may be on their way at once, and of each of them, however many they are. A first
batch that is larger comes whole."""


class Fetchers:
    """All fetchers of a broker. Nothing is copied before `start`, nor after `stop`."""

    def __init__(
        self,
        env: Environment,
        node_id: int,
        replicas: Replicas,
        metadata: Follower,
        cuts: Cuts,
        config: Callable[[], BrokerConfig],
        broker_epoch: Callable[[], int],
    ) -> None:
        self.env = env
        self.cuts = cuts
        self.node_id = node_id
        self._replicas = replicas
        self._metadata = metadata
        self._config = config
        self._broker_epoch = broker_epoch
        self._peers = Peers(env, "replication", client_id=f"broker-{node_id}-fetcher")
        self._fetchers: dict[int, Fetcher] = {}
        self._leaders: dict[TopicIdPartition, tuple[int, int]] = {}  # leader and epoch of each that is followed
        self._opener = object()
        self._started = self._stopped = False
        metadata.subscribe(self._image_changed)

    # -- what the fetchers share

    @property
    def config(self) -> BrokerConfig:
        return self._config()

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch()

    def peer(self, leader_id: int) -> Peer | None:
        broker = self._metadata.image.brokers.get(leader_id)
        name = self.config.inter_broker_listener.name
        endpoint = None if broker is None else next((one for one in broker.endpoints if one.name == name), None)
        return None if endpoint is None else self._peers.at(leader_id, endpoint.host, endpoint.port)

    def hang_up(self, leader_id: int) -> None:
        self._peers.forget(leader_id)

    def answer_bytes(self) -> int:
        share = max(ANSWER_BYTES_MIN, ANSWERS_BYTES_MAX // max(1, len(self._fetchers)))
        return min(self.config.replica_fetch_response_max_bytes, share)

    # -- start and stop

    def start(self) -> None:
        """The broker is registered: leaders know its epoch, and the image says what it has."""
        self._started = True
        image = self._metadata.image
        self.env.loop.spread(self._look_at_all(image)).on_done(lambda done: done.result())

    def _look_at_all(self, image: ClusterImage) -> Steps[None]:
        for name, indexes in list(replicas_of(image, self.node_id)):
            topic_id = image.topics[name].id
            for count, index in enumerate(indexes, 1):
                self._look(topic_id, index)
                if not count % LOOKS_A_STEP:
                    yield
            yield

    def stop(self) -> None:
        """Nothing more is written to any log."""
        self._stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()
        self._leaders.clear()
        self._peers.close()

    @property
    def fetchers(self) -> Mapping[int, Fetcher]:
        """By leader."""
        return self._fetchers

    # -- following the image

    def _image_changed(
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed_configs: Set[object]
    ) -> Steps[None] | None:
        if not self._started or self._stopped:
            return None
        if old.brokers is not new.brokers:
            for leader_id in self._fetchers:
                self.peer(leader_id)  # an address that it left is asked nothing more
        return self._look_at(old, changed_topics) if changed_topics else None

    def _look_at(self, old: ClusterImage, changed_topics: ChangedTopics) -> Steps[None]:
        for topic_id, indexes in changed_topics.items():
            gone = topic_id not in self._metadata.image.topics_by_id
            before = old.topics_by_id.get(topic_id)
            looked_at = range(0 if before is None else len(before.partitions)) if gone else indexes
            for count, index in enumerate(looked_at, 1):
                self._look(topic_id, index)
                if not count % LOOKS_A_STEP:
                    yield
            yield

    def _look(self, topic_id: bytes, index: int) -> None:
        """Follow its leader of now, in its epoch of now; nobody, where this broker has no replica of it, or leads."""
        if self._stopped:
            return
        key = topic_id, index
        topic = self._metadata.image.topics_by_id.get(topic_id)
        due = None if topic is None else self._due(topic, index)
        if due == self._leaders.get(key):
            return
        self._end(key)
        if due is not None:
            self._leaders[key] = due
            self._begin(key)

    def _due(self, topic: TopicImage, index: int) -> tuple[int, int] | None:
        image = topic.partitions[index]
        if image.leader in (NO_LEADER, self.node_id) or self.node_id not in image.replicas:
            return None
        return image.leader, image.leader_epoch

    def _begin(self, key: TopicIdPartition) -> None:
        """Have its log opened, and copied then."""
        due = self._leaders.get(key)
        if due is None or self._stopped:
            return
        try:
            partition = self._replicas.by_id(*key, asker=self._opener)
        except NotOpenYet as not_yet:
            not_yet.opened.on_done(partial(self._opened, key))
            return
        except (KafkaError, OSError) as error:
            log.warning("partition %d of topic %s can't be copied: %s", key[1], key[0].hex(), error)
            self.env.loop.call_later(OPEN_AGAIN_S, self._begin_again, key, due)
            return
        self._follow(partition, due)

    def _opened(self, key: TopicIdPartition, opened: Promise[None]) -> None:
        if opened.error is None:
            self.env.loop.call_soon(self._begin, key)
        elif key in self._leaders:
            self.env.loop.call_later(OPEN_AGAIN_S, self._begin_again, key, self._leaders[key])

    def _begin_again(self, key: TopicIdPartition, due: tuple[int, int]) -> None:
        if self._leaders.get(key) == due:
            self._begin(key)

    def _follow(self, partition: Partition, due: tuple[int, int]) -> None:
        leader_id, _ = due
        if (partition.leader, partition.leader_epoch) != due:  # one of the two is about to hear of a newer epoch
            self.env.loop.call_later(SOON_S, self._begin_again, (partition.topic_id, partition.index), due)
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(self, leader_id)
        fetcher.follow(partition)

    def _end(self, key: TopicIdPartition) -> None:
        before = self._leaders.pop(key, None)
        fetcher = None if before is None else self._fetchers.get(before[0])
        if before is None or fetcher is None:
            return
        fetcher.leave(key)
        if not len(fetcher):
            del self._fetchers[before[0]]
            fetcher.stop()
            self._peers.forget(before[0])

    def check_invariants(self) -> None:
        for leader_id, fetcher in self._fetchers.items():
            fetcher.check_invariants()
            for key in fetcher.followed:
                assert self._leaders[key][0] == leader_id
