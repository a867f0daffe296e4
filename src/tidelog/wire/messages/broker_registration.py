"""BrokerRegistration (key 62): a broker joins the cluster, fenced, and gets its epoch.

v1 migration from ZooKeeper, v2 log directories, v3 the epoch of the last clean shutdown (KIP-966),
v4 features from level 0.
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, u16, uuid, wire
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


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationRequest:
    broker_id: i32 = 0
    cluster_id: str = ""
    incarnation_id: uuid = ZERO_UUID
    listeners: list[Listener] = wire(factory=list)
    features: list[Feature] = wire(factory=list)
    rack: str | None = ""
    is_migrating_zk_broker: bool = wire("1+", default=False)
    log_dirs: list[uuid] = wire("2+", factory=list, ignorable=True)
    previous_broker_epoch: i64 = wire("3+", default=-1, ignorable=True)


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    broker_epoch: i64 = -1
