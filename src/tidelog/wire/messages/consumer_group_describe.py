"""ConsumerGroupDescribe (key 69): epochs, assignor and members of groups of the consumer protocol (KIP-848).

v1 a member's type.
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = wire(factory=list)
    include_authorized_operations: bool = False


@struct
class TopicPartitions:
    topic_id: uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[i32] = wire(factory=list)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = wire(factory=list)


@struct
class Member:
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: i32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = wire(factory=list)
    subscribed_topic_regex: str | None = None
    assignment: Assignment = wire(factory=Assignment)
    target_assignment: Assignment = wire(factory=Assignment)
    member_type: i8 = wire("1+", default=-1, ignorable=True)


@struct
class DescribedGroup:
    error_code: i16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: i32 = 0
    assignment_epoch: i32 = 0
    assignor_name: str = ""
    members: list[Member] = wire(factory=list)
    authorized_operations: i32 = -2147483648


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: i32 = 0
    groups: list[DescribedGroup] = wire(factory=list)
