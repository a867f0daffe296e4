"""DescribeCluster (key 60): cluster id, controller and brokers (KIP-700).

v1 asks a broker's or a controller's endpoints (KIP-919); v2 shows fenced brokers (KIP-1073).
"""

from tidelog.wire.codec import i8, i16, i32, message, struct, wire


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = False
    endpoint_type: i8 = wire("1+", default=1)
    include_fenced_brokers: bool = wire("2+", default=False)


@struct
class DescribeClusterBroker:
    broker_id: i32 = 0
    host: str = ""
    port: i32 = 0
    rack: str | None = None
    is_fenced: bool = wire("2+", default=False)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = None
    endpoint_type: i8 = wire("1+", default=1)
    cluster_id: str = ""
    controller_id: i32 = -1
    brokers: list[DescribeClusterBroker] = wire(factory=list)
    cluster_authorized_operations: i32 = -2147483648
