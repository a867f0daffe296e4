"""UpdateFeatures (key 57): raise or lower feature levels of the cluster (KIP-584).

v1 can only check, and downgrade types; v2 answers without a result for each feature.
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, wire


@struct
class FeatureUpdateKey:
    feature: str = ""
    max_version_level: i16 = 0
    allow_downgrade: bool = wire("0", default=False)
    upgrade_type: i8 = wire("1+", default=1)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: i32 = 60000
    feature_updates: list[FeatureUpdateKey] = wire(factory=list)
    validate_only: bool = wire("1+", default=False)


@struct
class UpdatableFeatureResult:
    feature: str = ""
    error_code: i16 = 0
    error_message: str | None = ""


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = wire("0-1", factory=list, ignorable=True)
