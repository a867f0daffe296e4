"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from settings (KIP-339).

What isn't named stays as it is. Each resource succeeds or fails by itself. v1 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.config_changes import RESOURCES_A_STEP, alter, responses, too_many
from tidelog.controller.bounds import CHANGES_MAX
from tidelog.controller.configs import Change, ResourceChange
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps


def handle(
    context: Context, request: IncrementalAlterConfigsRequest
) -> Steps[IncrementalAlterConfigsResponse | Promise[IncrementalAlterConfigsResponse]]:
    if len(request.resources) > CHANGES_MAX or sum(len(one.configs) for one in request.resources) > CHANGES_MAX:
        return IncrementalAlterConfigsResponse(
            responses=(yield from too_many(request.resources, AlterConfigsResourceResponse))
        )
    changes: list[ResourceChange] = []
    for resource in request.resources:
        changes.append(
            ResourceChange(
                resource.resource_type,
                resource.resource_name,
                tuple(Change(config.name, config.config_operation, config.value) for config in resource.configs),
            )
        )
        if not len(changes) % RESOURCES_A_STEP:
            yield
    altered = yield from alter(context, changes, validate_only=request.validate_only)
    return altered.map(
        lambda outcomes: IncrementalAlterConfigsResponse(
            responses=responses(outcomes, changes, AlterConfigsResourceResponse)
        )
    )
