"""DescribeAcls (key 29): the access control entries that match a filter.

v1 pattern types (KIP-290); v2 flexible; v3 may ask for users as resources.
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, wire


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: i8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: i8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: i8 = 0
    permission_type: i8 = 0


@struct
class AclDescription:
    principal: str = ""
    host: str = ""
    operation: i8 = 0
    permission_type: i8 = 0


@struct
class DescribeAclsResource:
    resource_type: i8 = 0
    resource_name: str = ""
    pattern_type: i8 = 3
    acls: list[AclDescription] = wire(factory=list)


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = wire(factory=list)
