"""UpdateFeatures (key 57): raise or lower the levels of the cluster's features, all of the request or none.

v1 knows kinds of upgrades and `validate_only`, v2 has one error for the request instead of one a feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.bounds import FEATURE_UPDATES_MAX
from tidelog.apis.shared.bounded_wait import decide
from tidelog.controller.features import update_features
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context


def handle(context: Context, request: UpdateFeaturesRequest) -> Promise[UpdateFeaturesResponse]:
    services = context.services
    if len(request.feature_updates) > FEATURE_UPDATES_MAX:
        many = f"{len(request.feature_updates)} features in one request; {FEATURE_UPDATES_MAX} are allowed"
        return Promise[UpdateFeaturesResponse].resolved(
            UpdateFeaturesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=many)
        )
    return decide(
        services,
        lambda image, now_ms: update_features(
            image, request, services.quorum.kraft_version, context.version, services.controller.defaults
        ),
        services.config.request_timeout_ms,
        lambda error: UpdateFeaturesResponse(error_code=error.code, error_message=error.message),
    )
