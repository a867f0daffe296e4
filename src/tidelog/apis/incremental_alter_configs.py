"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from settings (KIP-339).

What isn't named stays as it is. Each resource succeeds or fails by itself. v1 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.altering import alter, told
from tidelog.controller.configs import Change, ResourceChange
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: IncrementalAlterConfigsRequest) -> Promise[IncrementalAlterConfigsResponse]:
    changes = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            tuple(Change(config.name, config.config_operation, config.value) for config in resource.configs),
        )
        for resource in request.resources
    ]

    return alter(context, changes, validate_only=request.validate_only).map(
        lambda outcomes: IncrementalAlterConfigsResponse(
            responses=told(outcomes, changes, AlterConfigsResourceResponse)
        )
    )
