"""DescribeLogDirs (key 35): the folders that hold a broker's logs and how full they are.

v2 flexible; v3 has an error of the whole answer; v4 total and usable bytes (KIP-827); v5 cordoned folders (KIP-1066).
"""

from tidelog.wire.codec import i16, i32, i64, message, struct, wire


@struct
class DescribableLogDirTopic:
    topic: str = ""
    partitions: list[i32] = wire(factory=list)


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = wire(factory=list)


@struct
class DescribeLogDirsPartition:
    partition_index: i32 = 0
    partition_size: i64 = 0
    offset_lag: i64 = 0
    is_future_key: bool = False


@struct
class DescribeLogDirsTopic:
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = wire(factory=list)


@struct
class DescribeLogDirsResult:
    error_code: i16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = wire(factory=list)
    total_bytes: i64 = wire("4+", default=-1, ignorable=True)
    usable_bytes: i64 = wire("4+", default=-1, ignorable=True)
    is_cordoned: bool = wire("5+", default=False, ignorable=True)


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = wire("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = wire(factory=list)
