"""Changing settings, for AlterConfigs and IncrementalAlterConfigs: of topics, brokers and loggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.apis.listeners import ListenerKind, kind_of
from tidelog.apis.shared.loggers import LOGGER_RESOURCE, alter_loggers
from tidelog.controller.bounds import CHANGES_MAX
from tidelog.controller.configs import Outcome, alter_configs, check_own_id, check_resources
from tidelog.env.promise import Promise
from tidelog.metadata.image import BROKER_RESOURCE
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.apis.shared.context import Context
    from tidelog.controller.configs import ResourceChange
    from tidelog.env.slices import Steps

T = TypeVar("T")

RESOURCES_A_STEP = 256


def alter(context: Context, resources: list[ResourceChange], *, validate_only: bool) -> Steps[Promise[list[Outcome]]]:
    """An outcome for each resource, in order. Loggers can be altered one by one only, not replaced as a whole."""
    services = context.services
    outcomes = yield from check_resources(resources)
    kept: list[ResourceChange] = []
    for place, resource in enumerate(resources):
        if place % RESOURCES_A_STEP == RESOURCES_A_STEP - 1:
            yield
        if outcomes[place] is not None:
            continue
        other = _of_another_broker(context, resource)
        if other is not None:
            outcomes[place] = other
        elif resource.type == LOGGER_RESOURCE and resource.replaces:
            outcomes[place] = Outcome(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")
        elif resource.type == LOGGER_RESOURCE:
            outcomes[place] = alter_loggers(resource, services.node_id, validate_only=validate_only)
        else:
            kept.append(resource)

    def merge(decided: list[Outcome]) -> list[Outcome]:
        rest = iter(decided)
        return [next(rest) if outcome is None else outcome for outcome in outcomes]

    def finish(promise: Promise[list[Outcome]]) -> list[Outcome]:
        error = promise.error
        if isinstance(error, KafkaError):  # the change as a whole couldn't be made
            return merge([Outcome(error.code, error.message)] * len(kept))
        return merge(promise.result())

    if not kept:
        answer: Promise[list[Outcome]] = Promise()
        answer.resolve(merge([]))
        return answer
    return services.controller.submit_steps(
        lambda image, now_ms: alter_configs(image, kept, broker=services.config, validate_only=validate_only)
    ).then(finish)


def _of_another_broker(context: Context, resource: ResourceChange) -> Outcome | None:
    """What a broker says that is asked for the settings of another one; a controller isn't one of them."""
    services = context.services
    if resource.type != BROKER_RESOURCE or not resource.name:
        return None
    if kind_of(context.listener, services.config) is ListenerKind.CONTROLLER:
        return None
    try:
        check_own_id(resource.name, services.node_id)
    except KafkaError as error:
        return Outcome(error.code, error.message)
    return None


def too_many(resources: Sequence[Any], make: Callable[..., T]) -> Steps[list[T]]:
    """The answer for each of more resources, or with more settings, than one request may name; `resources` as the
    request has them."""
    outcome = Outcome(
        ErrorCode.POLICY_VIOLATION, f"more than {CHANGES_MAX} resources, or settings of them, in one request"
    )
    answers: list[T] = []
    for resource in resources:
        answers.append(_response(outcome, resource.resource_type, resource.resource_name, make))
        if not len(answers) % RESOURCES_A_STEP:
            yield
    return answers


def responses(outcomes: Sequence[Outcome], resources: Sequence[ResourceChange], make: Callable[..., T]) -> list[T]:
    """The outcomes as an answer has them: `make` is its class for one resource."""
    return [
        _response(outcome, resource.type, resource.name, make)
        for resource, outcome in zip(resources, outcomes, strict=True)
    ]


def _response(outcome: Outcome, kind: int, name: str, make: Callable[..., T]) -> T:
    return make(error_code=outcome.code, error_message=outcome.message, resource_type=kind, resource_name=name)
