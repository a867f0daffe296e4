"""DescribeConfigs (key 32): configs of topics, brokers and other resources.

v1 sources and synonyms; v3 types and documentation (KIP-569); v4 flexible.
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, wire


@struct
class DescribeConfigsResource:
    resource_type: i8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = wire(factory=list)


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = wire(factory=list)
    include_synonyms: bool = False
    include_documentation: bool = wire("3+", default=False)


@struct
class DescribeConfigsSynonym:
    name: str = ""
    value: str | None = ""
    source: i8 = 0


@struct
class DescribeConfigsResourceResult:
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: i8 = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = wire(factory=list)
    config_type: i8 = wire("3+", default=0, ignorable=True)
    documentation: str | None = wire("3+", default="", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: i16 = 0
    error_message: str | None = ""
    resource_type: i8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = wire(factory=list)


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: i32 = 0
    results: list[DescribeConfigsResult] = wire(factory=list)
