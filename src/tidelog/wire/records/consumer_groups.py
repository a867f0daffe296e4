"""Records of `__consumer_offsets`: groups of the consumer protocol (KIP-848).

A group is its epoch (3), its members' subscriptions (5), the target assignment with its epoch (6) and each member's
part of it (7), what each member has now (8), and its regular expressions with the topics that they match (16).
Partition metadata (4) is no longer written since a hash of it stands in (3).
"""

from tidelog.wire.codec import i8, i32, i64, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@message(key=3, versions="0", flexible="none")
class ConsumerGroupMetadataKey:
    group_id: str = ""


@message(key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: i32 = 0
    metadata_hash: i64 = wire(default=0, tag=0)


@message(key=4, versions="0", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    group_id: str = ""


@struct
class PartitionMetadata:
    partition: i32 = 0
    racks: list[str] = wire(factory=list)


@struct
class TopicMetadata:
    topic_id: uuid = ZERO_UUID
    topic_name: str = ""
    num_partitions: i32 = 0
    partition_metadata: list[PartitionMetadata] = wire(factory=list)


@message(key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata] = wire(factory=list)


@message(key=5, versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    group_id: str = ""
    member_id: str = ""


@struct
class ClassicProtocol:
    name: str = ""
    metadata: bytes = b""


@struct
class ClassicMemberMetadata:
    session_timeout_ms: i32 = 0
    supported_protocols: list[ClassicProtocol] = wire(factory=list)


@message(key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = wire(factory=list)
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: i32 = -1
    server_assignor: str | None = ""
    classic_member_metadata: ClassicMemberMetadata | None = wire(factory=ClassicMemberMetadata, tag=0)


@message(key=6, versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = ""


@message(key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: i32 = 0
    assignment_timestamp: i64 = wire(default=0, tag=0)


@message(key=7, versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = ""
    member_id: str = ""


@struct
class TopicPartition:
    topic_id: uuid = ZERO_UUID
    partitions: list[i32] = wire(factory=list)


@message(key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = wire(factory=list)


@message(key=8, versions="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = ""
    member_id: str = ""


@struct
class TopicPartitions:
    topic_id: uuid = ZERO_UUID
    partitions: list[i32] = wire(factory=list)
    assignment_epochs: list[i32] | None = wire(factory=list, tag=0)


@message(key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: i32 = 0
    previous_member_epoch: i32 = 0
    state: i8 = 0
    assigned_partitions: list[TopicPartitions] = wire(factory=list)
    partitions_pending_revocation: list[TopicPartitions] = wire(factory=list)


@message(key=16, versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    group_id: str = ""
    regular_expression: str = ""


@message(key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = wire(factory=list)
    version: i64 = 0
    timestamp: i64 = 0
