"""Requests made to take memory and time: arrays of nothing, tagged fields without end, batches that inflate.

Each is refused before much was made of it, and a client beside it is answered meanwhile.
"""

import struct

import cramjam
import pytest

from tests.batches import GZIP, LZ4, SNAPPY, ZSTD, Batch, Sent
from tests.raw import ClosedError, Connection
from tests.reading import create_topic, stored
from tests.served import Tidelog
from tests.stories.test_attack_requests import resident_mb
from tests.work import cpu_s
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import RANGES, ApiKey

REQUEST_BYTES = 40 << 20
GROWTH_MB_MAX = 150
CPU_S_MAX = 2.0
INFLATED_MB = 400


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def arrays_of_nothing() -> dict[str, tuple[ApiKey, int, bytes]]:
    """Requests of elements that take next to nothing on the wire."""
    many = REQUEST_BYTES // 2
    one_topic = uvarint(2) + uvarint(2) + b"t"
    return {
        "metadata": (ApiKey.METADATA, 1, struct.pack(">i", many) + b"\0\0" * many),
        "configs": (ApiKey.DESCRIBE_CONFIGS, 4, uvarint(2) + b"\2" + uvarint(2) + b"t" + uvarint(many) + b"\1" * many),
        "topics": (ApiKey.DELETE_TOPICS, 1, struct.pack(">i", many) + b"\0\0" * many + bytes(4)),
        "partitions": (
            ApiKey.FETCH,
            4,
            struct.pack(">iiiibi", -1, 0, 0, 1, 0, 1) + b"\0\1t" + struct.pack(">i", many // 8) + bytes(2 * many),
        ),
        "tags": (ApiKey.API_VERSIONS, 3, b"\2a\2b" + uvarint(2**31 - 1) + b"\1\0" * many),
        "tags of each": (
            ApiKey.METADATA,
            12,
            uvarint(20_001) + (bytes(16) + b"\0" + uvarint(1000) + b"\x40\0" * 1000) * 20_000 + b"\0\0\0",
        ),
        "produce": (
            ApiKey.PRODUCE,
            9,
            b"\0" + struct.pack(">hi", 1, 1000) + one_topic + uvarint(many // 3) + bytes(2 * many),
        ),
    }


@pytest.mark.parametrize("name", arrays_of_nothing())
def test_arrays_of_nothing_are_refused_in_time(tidelog: Tidelog, name: str) -> None:
    key, version, body = arrays_of_nothing()[name]
    head = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if version >= RANGES[key].flexible_from else b"")
    before, spent_s = resident_mb(tidelog.pid), cpu_s(tidelog.pid)
    with Connection(tidelog.bootstrap) as attacker, Connection(tidelog.bootstrap) as other:
        attacker.send_frame(head + body)
        with pytest.raises(ClosedError):
            attacker.read_frame()
        other.ask(ApiKey.API_VERSIONS, 0)
    assert cpu_s(tidelog.pid) - spent_s < CPU_S_MAX
    assert resident_mb(tidelog.pid) < before + GROWTH_MB_MAX


def bomb(codec: int) -> bytes:
    raw = bytes(INFLATED_MB << 20)
    match codec:
        case _ if codec == GZIP:
            made = cramjam.gzip.compress(raw)
        case _ if codec == SNAPPY:
            made = cramjam.snappy.compress_raw(raw[: 200 << 20])
        case _ if codec == LZ4:
            made = cramjam.lz4.compress(raw)
        case _:
            made = cramjam.zstd.compress(raw)
    return bytes(made)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_inflates_without_end_is_refused(tidelog: Tidelog, codec: int) -> None:
    settings = [{"tidelog.validate": "records"}, {"compression.type": "uncompressed"}, {"cleanup.policy": "compact"}]
    body = bomb(codec)
    with Connection(tidelog.bootstrap) as connection:
        for number, configs in enumerate(settings):
            create_topic(tidelog.bootstrap, f"t{number}", 1, configs)
            data = {"index": 0, "records": Batch([Sent()], codec=codec, body=body).encode()}
            topic = {"name": f"t{number}", "partition_data": [data]}
            request = {"acks": -1, "timeout_ms": 5000, "topic_data": [topic]}
            answer = connection.ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert stored(tidelog.bootstrap, f"t{number}") == []
    assert resident_mb(tidelog.pid) < 400
