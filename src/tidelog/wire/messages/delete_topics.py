"""DeleteTopics (key 20): delete topics.

v3 may answer TOPIC_DELETION_DISABLED; v4 flexible; v5 error messages; v6 by name or by id (KIP-516).
"""

from tidelog.wire.codec import i16, i32, message, struct, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class DeleteTopicState:
    name: str | None = None
    topic_id: uuid = ZERO_UUID


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = wire("6+", factory=list)
    topic_names: list[str] = wire("1-5", factory=list, ignorable=True)
    timeout_ms: i32 = 0


@struct
class DeletableTopicResult:
    name: str | None = wire(default="", nullable="6+")
    topic_id: uuid = wire("6+", default=ZERO_UUID, ignorable=True)
    error_code: i16 = 0
    error_message: str | None = wire("5+", default=None, ignorable=True)


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: i32 = 0
    responses: list[DeletableTopicResult] = wire(factory=list)
