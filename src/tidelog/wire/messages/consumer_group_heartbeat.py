"""ConsumerGroupHeartbeat (key 68): join, stay in, reconcile with and leave a group of the consumer protocol (KIP-848).

v1 subscription by a regular expression, and member ids made by the client.
"""

from tidelog.wire.codec import i16, i32, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class TopicPartitions:
    topic_id: uuid = ZERO_UUID
    partitions: list[i32] = wire(factory=list)


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = ""
    member_id: str = ""
    member_epoch: i32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: i32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = wire("1+", default=None)
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = wire(factory=list)


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: i32 = 0
    heartbeat_interval_ms: i32 = 0
    assignment: Assignment | None = None
