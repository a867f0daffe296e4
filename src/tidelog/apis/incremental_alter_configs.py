"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from settings of topics or brokers (KIP-339).

What isn't named stays as it is. Each resource succeeds or fails by itself. v1 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.configs import Change, Outcome, ResourceChange, alter_configs
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.apis.context import Context
    from tidelog.env.promise import Promise


def handle(context: Context, request: IncrementalAlterConfigsRequest) -> Promise[IncrementalAlterConfigsResponse]:
    services = context.services
    changes = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            tuple(Change(config.name, config.config_operation, config.value) for config in resource.configs),
        )
        for resource in request.resources
    ]

    def answer(outcomes: list[Outcome]) -> IncrementalAlterConfigsResponse:
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=outcome.code,
                    error_message=outcome.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource, outcome in zip(request.resources, outcomes, strict=True)
            ]
        )

    return services.controller.submit(
        lambda image, now_ms: alter_configs(
            image, changes, broker=services.config, node_id=services.node_id, validate_only=request.validate_only
        )
    ).map(answer)
