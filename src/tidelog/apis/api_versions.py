"""ApiVersions (key 18): what is served on the listener that was asked, in which versions, and the cluster's features.

Asked first on every connection, in a version that the broker may not know: then the answer is in version 0 with
UNSUPPORTED_VERSION and the versions of ApiVersions itself (KIP-511), so that the client can ask again. Produce is told
from version 0 although 3 is the lowest that works: an old librdkafka looks for it (KAFKA-18659). Telemetry (KIP-714) is
answered but not told, as by a Kafka without a plugin for it: clients that see it ask at every start, and librdkafka
prints a line then.

v3 names the client's software and tells features, whose epoch never falls: it is the offset of the metadata image.
v4 tells supported features that start at level 0 too; older clients can't read them (KAFKA-17492).
"""

import re
from typing import TYPE_CHECKING

from tidelog.apis.listeners import kind_of, served_on
from tidelog.metadata.versions import KRAFT_VERSION, SUPPORTED
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import RANGES, ApiKey
from tidelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

PRODUCE_TOLD_FROM = 0
NOT_TOLD = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: "Context", request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image = context.services.metadata.image
    kind = kind_of(context.listener, context.services.config)
    finalized = dict(image.features)
    if context.services.quorum.kraft_version > 0:
        finalized[KRAFT_VERSION] = context.services.quorum.kraft_version
    return ApiVersionsResponse(
        api_keys=[_advertised(key) for key in sorted(served_on(kind)) if key not in NOT_TOLD],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED.items()
            if low > 0 or context.version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.items()
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to a version of ApiVersions that isn't known."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_advertised(ApiKey.API_VERSIONS)])


def _advertised(key: int) -> ApiVersion:
    served = RANGES[key]
    low = PRODUCE_TOLD_FROM if key == ApiKey.PRODUCE else served.min
    return ApiVersion(api_key=key, min_version=low, max_version=served.max)
