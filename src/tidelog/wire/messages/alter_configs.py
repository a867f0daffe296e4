"""AlterConfigs (key 33): replace all configs of a resource.

IncrementalAlterConfigs is the better choice. v2 flexible.
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, wire


@struct
class AlterableConfig:
    name: str = ""
    value: str | None = ""


@struct
class AlterConfigsResource:
    resource_type: i8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = wire(factory=list)


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = wire(factory=list)
    validate_only: bool = False


@struct
class AlterConfigsResourceResponse:
    error_code: i16 = 0
    error_message: str | None = ""
    resource_type: i8 = 0
    resource_name: str = ""


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: i32 = 0
    responses: list[AlterConfigsResourceResponse] = wire(factory=list)
