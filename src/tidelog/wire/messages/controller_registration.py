"""ControllerRegistration (key 70): a controller names its endpoints and features. Flexible from the first version."""

from tidelog.wire.codec import i16, i32, message, struct, u16, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class Listener:
    name: str = ""
    host: str = ""
    port: u16 = 0
    security_protocol: i16 = 0


@struct
class Feature:
    name: str = ""
    min_supported_version: i16 = 0
    max_supported_version: i16 = 0


@message(key=70, versions="0", flexible="0+")
class ControllerRegistrationRequest:
    controller_id: i32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: list[Listener] = wire(factory=list)
    features: list[Feature] = wire(factory=list)


@message(key=70, versions="0", flexible="0+")
class ControllerRegistrationResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
