"""Metadata records of brokers and controllers."""

from tidelog.wire.codec import i8, i16, i32, i64, message, struct, u16, uuid, wire
from tidelog.wire.uuids import ZERO_UUID


@struct
class BrokerEndpoint:
    name: str = ""
    host: str = ""
    port: u16 = 0
    security_protocol: i16 = 0


@struct
class BrokerFeature:
    name: str = ""
    min_supported_version: i16 = 0
    max_supported_version: i16 = 0


@message(key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    broker_id: i32 = 0
    is_migrating_zk_broker: bool = wire("2+", default=False)
    incarnation_id: uuid = ZERO_UUID
    broker_epoch: i64 = 0
    end_points: list[BrokerEndpoint] = wire(factory=list)
    features: list[BrokerFeature] = wire(factory=list)
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: bool = wire("1+", default=False)
    log_dirs: list[uuid] = wire("3+", factory=list, tag=0)
    cordoned_log_dirs: list[uuid] | None = wire("4+", default=None, tag=1)


@message(key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    broker_id: i32 = 0
    broker_epoch: i64 = 0


@message(key=7, versions="0", flexible="0+")
class FenceBrokerRecord:
    id: i32 = 0
    epoch: i64 = 0


@message(key=8, versions="0", flexible="0+")
class UnfenceBrokerRecord:
    id: i32 = 0
    epoch: i64 = 0


@message(key=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    broker_id: i32 = 0
    broker_epoch: i64 = 0
    fenced: i8 = wire(default=0, tag=0)
    in_controlled_shutdown: i8 = wire("1+", default=0, tag=1)
    log_dirs: list[uuid] = wire("2+", factory=list, tag=2)
    cordoned_log_dirs: list[uuid] | None = wire("3+", default=None, tag=3)


@struct
class ControllerEndpoint:
    name: str = ""
    host: str = ""
    port: u16 = 0
    security_protocol: i16 = 0


@struct
class ControllerFeature:
    name: str = ""
    min_supported_version: i16 = 0
    max_supported_version: i16 = 0


@message(key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    controller_id: i32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: bool = False
    end_points: list[ControllerEndpoint] = wire(factory=list)
    features: list[ControllerFeature] = wire(factory=list)
