"""ListConfigResources (key 74): the resources that have configs.

v0 lists client-metrics resources only; v1 asks by type (KIP-1142).
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, wire


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[i8] = wire("1+", factory=list)


@struct
class ConfigResource:
    resource_name: str = ""
    resource_type: i8 = wire("1+", default=16, ignorable=True)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    config_resources: list[ConfigResource] = wire(factory=list)
