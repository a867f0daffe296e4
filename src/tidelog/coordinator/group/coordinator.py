"""The group coordinator, as `apis` ask it. What a request does lives in the files of its protocol, as functions that
take the coordinator and the request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinator.group import expiry
from tidelog.coordinator.group.classic import hooks as classic
from tidelog.coordinator.group.consumer import hooks as consumer
from tidelog.coordinator.group.fold import fold
from tidelog.coordinator.group.live import GroupLive
from tidelog.coordinator.group.state import EMPTY, GroupsState
from tidelog.coordinator.placement import CONSUMER_OFFSETS
from tidelog.coordinator.shard import Kind
from tidelog.coordinator.shards import Shards
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.coordinator import OFFSETS_TOPIC, RecordTypes

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.group.live import GroupShard
    from tidelog.env import Clock, Environment, Random
    from tidelog.metadata.follow import Follower
    from tidelog.replica.replicas import Replicas


class GroupCoordinator:
    """Every group whose partition of `__consumer_offsets` this broker leads."""

    __slots__ = ("_config", "clock", "metadata", "random", "shards")

    def __init__(
        self,
        shards: Shards[GroupsState, GroupLive],
        config: Callable[[], BrokerConfig],
        metadata: Follower,
        random: Random,
        clock: Clock,
    ) -> None:
        self.shards = shards
        self.metadata = metadata
        self.random = random
        self.clock = clock
        self._config = config
        shards.on_load += [
            partial(classic.on_load, self),
            partial(consumer.on_load, self),
            partial(expiry.begin, self),
        ]
        shards.on_unload += [partial(classic.on_unload, self), partial(consumer.on_unload, self)]
        metadata.subscribe(lambda old, new, topics, configs: expiry.topics_deleted(self, old, new, topics))

    @property
    def config(self) -> BrokerConfig:
        """The settings that hold now."""
        return self._config()

    def shard_of(self, group_id: str) -> GroupShard:
        """Where the group's state is. Raises INVALID_GROUP_ID for an empty id, and as `Shards.of` does."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group must have an id")
        return self.shards.of(group_id)


def group_coordinator(
    node_id: int, env: Environment, config: Callable[[], BrokerConfig], replicas: Replicas, metadata: Follower
) -> GroupCoordinator:
    """The coordinator on its shards."""
    kind: Kind[GroupsState, GroupLive] = Kind(
        topic=CONSUMER_OFFSETS,
        types=RecordTypes(OFFSETS_TOPIC),
        empty=EMPTY,
        fold=fold,
        make_live=lambda shard: GroupLive(),
        codec=lambda: config().offsets_topic_compression_codec,
        timeout_s=lambda: config().offsets_commit_timeout_ms / 1000,
    )
    shards = Shards(kind, node_id, env, replicas, metadata)
    return GroupCoordinator(shards, config, metadata, env.random, env.clock)
