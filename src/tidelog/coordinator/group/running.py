"""What the group coordinator needs once there is a group: imported then, since most of a broker's start is imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.coordinator.group import expiry
from tidelog.coordinator.group.classic import hooks as classic
from tidelog.coordinator.group.consumer import hooks as consumer
from tidelog.coordinator.group.ending import end_transaction, prepare
from tidelog.coordinator.group.fold import fold
from tidelog.coordinator.group.live import GroupLive
from tidelog.coordinator.group.state import EMPTY, GroupsState
from tidelog.coordinator.placement import CONSUMER_OFFSETS
from tidelog.coordinator.shard import Kind
from tidelog.wire.records.coordinator import OFFSETS_TOPIC, RecordTypes

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.group.live import GroupShard


def groups_kind(config: Callable[[], BrokerConfig]) -> Kind[GroupsState, GroupLive]:
    """The state of groups, on its topic."""
    return Kind(
        topic=CONSUMER_OFFSETS,
        types=RecordTypes(OFFSETS_TOPIC),
        empty=EMPTY,
        fold=fold,
        make_live=lambda shard: GroupLive(),
        codec=lambda: config().offsets_topic_compression_codec,
        timeout_s=lambda: config().offsets_commit_timeout_ms / 1000,
        prepare=prepare,
        end_transaction=end_transaction,
    )


def loaded(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    """Each protocol brings its groups to life, and what expires is looked for from now on."""
    classic.on_load(coordinator, shard)
    consumer.on_load(coordinator, shard)
    expiry.begin(coordinator, shard)


def unloaded(coordinator: GroupCoordinator, shard: GroupShard) -> None:
    classic.on_unload(coordinator, shard)
    consumer.on_unload(coordinator, shard)
