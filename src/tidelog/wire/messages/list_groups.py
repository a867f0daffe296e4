"""ListGroups (key 16): the groups that a broker coordinates.

v3 flexible; v4 states, in the filter and in the answer (KIP-518); v5 types likewise (KIP-848).
"""

from tidelog.wire.codec import i16, i32, message, struct, wire


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = wire("4+", factory=list)
    types_filter: list[str] = wire("5+", factory=list)


@struct
class ListedGroup:
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = wire("4+", default="", ignorable=True)
    group_type: str = wire("5+", default="", ignorable=True)


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: i32 = wire("1+", default=0, ignorable=True)
    error_code: i16 = 0
    groups: list[ListedGroup] = wire(factory=list)
