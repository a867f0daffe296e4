"""AlterConfigs (key 33): replace all settings of topics or brokers; what isn't named goes back to its default.

Kept for old clients; IncrementalAlterConfigs is what new ones use. Each resource succeeds or fails by itself. v2 is
flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.altering import alter, told
from tidelog.controller.configs import Change, Operation, ResourceChange
from tidelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: AlterConfigsRequest) -> Promise[AlterConfigsResponse]:
    changes = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            tuple(Change(config.name, Operation.SET, config.value) for config in resource.configs),
            replaces=True,
        )
        for resource in request.resources
    ]

    return alter(context, changes, validate_only=request.validate_only).map(
        lambda outcomes: AlterConfigsResponse(responses=told(outcomes, changes, AlterConfigsResourceResponse))
    )
