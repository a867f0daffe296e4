"""The group coordinator, as `apis` ask it. What a request does lives in the files of its protocol, as functions that
take the coordinator and the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.coordinator.bounds import COMMITTED_AT_ONCE
from tidelog.coordinator.placement import CONSUMER_OFFSETS
from tidelog.coordinator.shards import LateKind, Shards
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.group.consumer.downgrade import Migration
    from tidelog.coordinator.group.consumer.regex import Matches
    from tidelog.coordinator.group.live import GroupLive, GroupShard
    from tidelog.coordinator.group.state import GroupsState
    from tidelog.coordinator.shard import Kind
    from tidelog.env import Clock, Environment, Random
    from tidelog.metadata.follow import ChangedTopics, Follower
    from tidelog.metadata.image import ClusterImage
    from tidelog.replica.replicas import Replicas


class GroupCoordinator:
    """Every group whose partition of `__consumer_offsets` this broker leads."""

    __slots__ = ("_config", "_matches", "clock", "committed_at_once", "metadata", "random", "shards")

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
        self.committed_at_once = COMMITTED_AT_ONCE
        """The simulator lowers it."""
        self._config = config
        self._matches: Matches | None = None
        shards.on_load.append(self._loaded)
        shards.on_unload.append(self._unloaded)
        metadata.subscribe(self._image_changed)

    @property
    def config(self) -> BrokerConfig:
        """The settings that hold now."""
        return self._config()

    @property
    def matches(self) -> Matches:
        """What the expressions of its groups match; made with the first group that may have one."""
        if self._matches is None:
            from tidelog.coordinator.group.consumer.regex import Matches

            self._matches = Matches()
        return self._matches

    @property
    def migration(self) -> Migration:
        """How groups come from one protocol to the other; imported once there is one."""
        from tidelog.coordinator.group import migration

        return migration

    def shard_of(self, group_id: str) -> GroupShard:
        """Where the group's state is. Raises INVALID_GROUP_ID for an empty id, and as `Shards.of` does."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group must have an id")
        return self.shards.of(group_id)

    # -- what its parts are told; they are imported once there is a shard

    def _loaded(self, shard: GroupShard) -> None:
        from tidelog.coordinator.group.running import loaded

        loaded(self, shard)

    def _unloaded(self, shard: GroupShard) -> None:
        from tidelog.coordinator.group.running import unloaded

        unloaded(self, shard)

    def _image_changed(
        self, old: ClusterImage, new: ClusterImage, changed_topics: ChangedTopics, changed: set[tuple[int, str]]
    ) -> None:
        if changed_topics and any(True for _ in self.shards.loaded()):
            from tidelog.coordinator.group.expiry import topics_deleted

            topics_deleted(self, old, new, changed_topics)


def group_coordinator(
    node_id: int, env: Environment, config: Callable[[], BrokerConfig], replicas: Replicas, metadata: Follower
) -> GroupCoordinator:
    """The coordinator on its shards."""

    def make_kind() -> Kind[GroupsState, GroupLive]:
        from tidelog.coordinator.group.running import groups_kind

        return groups_kind(config)

    shards = Shards(LateKind(CONSUMER_OFFSETS, make_kind), node_id, env, replicas, metadata)
    return GroupCoordinator(shards, config, metadata, env.random, env.clock)
