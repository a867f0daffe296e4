"""Metadata records of topics and their partitions."""

from tidelog.wire.codec import i8, i32, message, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@message(key=2, versions="0", flexible="0+")
class TopicRecord:
    name: str = ""
    topic_id: uuid = ZERO_UUID


@message(key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    partition_id: i32 = -1
    topic_id: uuid = ZERO_UUID
    replicas: list[i32] = wire(factory=list)
    isr: list[i32] = wire(factory=list)
    removing_replicas: list[i32] = wire(factory=list)
    adding_replicas: list[i32] = wire(factory=list)
    leader: i32 = -1
    leader_recovery_state: i8 = wire(default=0, tag=0)
    leader_epoch: i32 = -1
    partition_epoch: i32 = -1
    directories: list[uuid] = wire("1+", factory=list)
    eligible_leader_replicas: list[i32] | None = wire("2+", default=None, tag=1)
    last_known_elr: list[i32] | None = wire("2+", default=None, tag=2)


@message(key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    partition_id: i32 = -1
    topic_id: uuid = ZERO_UUID
    isr: list[i32] | None = wire(default=None, tag=0)
    leader: i32 = wire(default=-2, tag=1)
    replicas: list[i32] | None = wire(default=None, tag=2)
    removing_replicas: list[i32] | None = wire(default=None, tag=3)
    adding_replicas: list[i32] | None = wire(default=None, tag=4)
    leader_recovery_state: i8 = wire(default=-1, tag=5)
    directories: list[uuid] | None = wire("1+", default=None, tag=8)
    eligible_leader_replicas: list[i32] | None = wire("2+", default=None, tag=6)
    last_known_elr: list[i32] | None = wire("2+", default=None, tag=7)


@message(key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    topic_id: uuid = ZERO_UUID


@message(key=28, versions="0", flexible="0+")
class ClearElrRecord:
    topic_name: str = ""
