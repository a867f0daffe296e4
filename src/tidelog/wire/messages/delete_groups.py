"""DeleteGroups (key 42): forget groups that have no members, with their offsets.

v2 flexible.
"""

from tidelog.wire.codec import i16, i32, message, struct, wire


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = wire(factory=list)


@struct
class DeletableGroupResult:
    group_id: str = ""
    error_code: i16 = 0


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: i32 = 0
    results: list[DeletableGroupResult] = wire(factory=list)
