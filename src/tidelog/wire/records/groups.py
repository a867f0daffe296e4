"""Records of `__consumer_offsets`: committed offsets, and groups of the classic protocol."""

from tidelog.wire.codec import i32, i64, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@message(key=2, versions="0", flexible="none")
class GroupMetadataKey:
    group: str = ""


@struct
class MemberMetadata:
    member_id: str = ""
    group_instance_id: str | None = wire("3+", default=None, ignorable=True)
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: i32 = wire("1+", default=-1, ignorable=True)
    session_timeout: i32 = 0
    subscription: bytes = b""
    assignment: bytes = b""


@message(key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = ""
    generation: i32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: i64 = wire("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = wire(factory=list)


@message(key=1, versions="0", flexible="none")
class OffsetCommitKey:
    group: str = ""
    topic: str = ""
    partition: i32 = 0


@message(key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: i64 = 0
    leader_epoch: i32 = wire("3+", default=-1, ignorable=True)
    metadata: str = ""
    commit_timestamp: i64 = 0
    expire_timestamp: i64 = wire("1", default=-1, ignorable=True)
    topic_id: uuid = wire("4+", default=ZERO_UUID, tag=0, ignorable=True)


@message(key=0, versions="0", flexible="none")
class LegacyOffsetCommitKey:
    group: str = ""
    topic: str = ""
    partition: i32 = 0


@message(key=0, versions="0", flexible="none")
class LegacyOffsetCommitValue:
    offset: i64 = 0
    metadata: str = ""
    commit_timestamp: i64 = 0
