"""ApiVersions (key 18): which APIs and versions the broker serves; the first thing a client asks.

A request of a version that the broker doesn't know is answered in v0 with UNSUPPORTED_VERSION. v3 flexible, client
software and features (KIP-511, KIP-584); v4 may name features whose least version is 0. The answer's header is always
v0.
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, wire


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = wire("3+", default="", ignorable=True)
    client_software_version: str = wire("3+", default="", ignorable=True)


@struct
class ApiVersion:
    api_key: i16 = 0
    min_version: i16 = 0
    max_version: i16 = 0


@struct
class SupportedFeatureKey:
    name: str = ""
    min_version: i16 = 0
    max_version: i16 = 0


@struct
class FinalizedFeatureKey:
    name: str = ""
    max_version_level: i16 = 0
    min_version_level: i16 = 0


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    error_code: i16 = 0
    api_keys: list[ApiVersion] = wire(factory=list)
    throttle_time_ms: i32 = wire("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = wire("3+", factory=list, tag=0, ignorable=True)
    finalized_features_epoch: i64 = wire("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = wire("3+", factory=list, tag=2, ignorable=True)
    zk_migration_ready: bool = wire("3+", default=False, tag=3, ignorable=True)
