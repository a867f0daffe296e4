"""AlterConfigs (key 33): replace all settings of topics or brokers; what isn't named goes back to its default.

Kept for old clients; IncrementalAlterConfigs is what new ones use. Each resource succeeds or fails by itself. v2 is
flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.apis.shared.config_changes import RESOURCES_A_STEP, alter, responses, too_many
from tidelog.controller.bounds import CHANGES_MAX
from tidelog.controller.configs import Change, Operation, ResourceChange
from tidelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context
    from tidelog.env.promise import Promise
    from tidelog.env.slices import Steps


def handle(
    context: Context, request: AlterConfigsRequest
) -> Steps[AlterConfigsResponse | Promise[AlterConfigsResponse]]:
    if len(request.resources) > CHANGES_MAX or sum(len(one.configs) for one in request.resources) > CHANGES_MAX:
        return AlterConfigsResponse(responses=(yield from too_many(request.resources, AlterConfigsResourceResponse)))
    changes: list[ResourceChange] = []
    for resource in request.resources:
        changes.append(
            ResourceChange(
                resource.resource_type,
                resource.resource_name,
                tuple(Change(config.name, Operation.SET, config.value) for config in resource.configs),
                replaces=True,
            )
        )
        if not len(changes) % RESOURCES_A_STEP:
            yield
    altered = yield from alter(context, changes, validate_only=request.validate_only)
    return altered.map(
        lambda outcomes: AlterConfigsResponse(responses=responses(outcomes, changes, AlterConfigsResourceResponse))
    )
