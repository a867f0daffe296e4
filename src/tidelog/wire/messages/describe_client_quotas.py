"""DescribeClientQuotas (key 48): the quotas that match a filter (KIP-546).

v1 flexible.
"""

from tidelog.wire.codec import f64, i8, i16, i32, message, struct, wire


@struct
class ComponentData:
    entity_type: str = ""
    match_type: i8 = 0
    match: str | None = ""


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData] = wire(factory=list)
    strict: bool = False


@struct
class EntityData:
    entity_type: str = ""
    entity_name: str | None = ""


@struct
class ValueData:
    key: str = ""
    value: f64 = 0.0


@struct
class EntryData:
    entity: list[EntityData] = wire(factory=list)
    values: list[ValueData] = wire(factory=list)


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = wire(factory=list)
