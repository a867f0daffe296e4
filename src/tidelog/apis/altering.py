"""Changing settings, for AlterConfigs and IncrementalAlterConfigs: of topics, brokers and loggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tidelog.apis.loggers import LOGGER_RESOURCE, alter_loggers
from tidelog.controller.configs import Outcome, alter_configs, check_resources
from tidelog.env.promise import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.apis.context import Context
    from tidelog.controller.configs import ResourceChange

T = TypeVar("T")


def alter(context: Context, resources: list[ResourceChange], *, validate_only: bool) -> Promise[list[Outcome]]:
    """An outcome for each resource, in order. Loggers can be altered one by one only, not replaced as a whole."""
    services = context.services
    outcomes: list[Outcome | None] = list(check_resources(resources))
    kept: list[ResourceChange] = []
    for place, resource in enumerate(resources):
        if outcomes[place] is not None:
            continue
        if resource.type == LOGGER_RESOURCE and not resource.replaces:
            outcomes[place] = alter_loggers(resource, services.node_id, validate_only=validate_only)
        else:
            kept.append(resource)

    def merge(decided: list[Outcome]) -> list[Outcome]:
        rest = iter(decided)
        return [next(rest) if outcome is None else outcome for outcome in outcomes]

    if not kept:
        answer: Promise[list[Outcome]] = Promise()
        answer.resolve(merge([]))
        return answer
    return services.controller.submit(
        lambda image, now_ms: alter_configs(
            image, kept, broker=services.config, node_id=services.node_id, validate_only=validate_only
        )
    ).map(merge)


def told(outcomes: Sequence[Outcome], resources: Sequence[ResourceChange], make: Callable[..., T]) -> list[T]:
    """The outcomes as an answer has them: `make` is its class for one resource."""
    return [
        make(
            error_code=outcome.code,
            error_message=outcome.message,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, outcome in zip(resources, outcomes, strict=True)
    ]
