"""DescribeClientQuotas (key 48): quotas of users, clients and addresses that match a filter.

Quotas can't be set through Tidelog yet, but may stand in metadata that Apache Kafka wrote; those are told. A filter is
checked as Kafka checks it. v1 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from tidelog.apis.shared.context import Context

ENTITY_TYPES = ("user", "client-id", "ip")
EXACT = 0
DEFAULT = 1
ANY_SPECIFIED = 2


def handle(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        exact, specified = _filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries: list[EntryData] = []
    for entity, quotas in context.services.metadata.image.quotas.items():
        parts = dict(entity)
        if request.strict and len(parts) != len(exact) + len(specified):
            continue
        if not specified <= parts.keys() or any(kind not in parts or parts[kind] != exact[kind] for kind in exact):
            continue
        entries.append(
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
        )
    return DescribeClientQuotasResponse(entries=entries)


def _filter(components: list[ComponentData]) -> tuple[dict[str, str | None], set[str]]:
    """Entities that must have this name (None: be the default), and those that must have some name."""
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in exact or kind in specified:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(component)
        if component.match_type == ANY_SPECIFIED:
            specified.add(kind)
        else:
            exact[kind] = component.match
    kinds = exact.keys() | specified
    if "ip" in kinds and len(kinds) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component.",
        )
    return exact, specified


def _check_match(component: ComponentData) -> None:
    if component.match_type == EXACT:
        if component.match is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
    elif component.match_type in (DEFAULT, ANY_SPECIFIED):
        if component.match is not None:
            name = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Request specified MATCH_TYPE_{name}, but also specified a match string."
            )
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
