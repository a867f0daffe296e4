"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from single configs (KIP-339).

v1 flexible.
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, wire


@struct
class AlterableConfig:
    name: str = ""
    config_operation: i8 = 0
    value: str | None = ""


@struct
class AlterConfigsResource:
    resource_type: i8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = wire(factory=list)


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = wire(factory=list)
    validate_only: bool = False


@struct
class AlterConfigsResourceResponse:
    error_code: i16 = 0
    error_message: str | None = ""
    resource_type: i8 = 0
    resource_name: str = ""


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: i32 = 0
    responses: list[AlterConfigsResourceResponse] = wire(factory=list)
