"""Requests as someone would send them who means harm, or has lost their mind: from the declarations, seeded."""

import struct
from random import Random
from typing import Any

from tests.batches import ANYONE, Batch, Producer, Sent
from tests.raw import request_class
from tidelog.wire.codec import encoder
from tidelog.wire.header import request_header
from tidelog.wire.keys import ApiKey
from tidelog.wire.schema import Array, Blob, Fixed, Kind, Structure, Text, schema

TOPICS = ("known", "recreated", "nobody")
TEXTS = (
    *TOPICS,
    "",
    ".",
    "..",
    "../../etc",
    "a/b",
    "nul\0nul",
    "x" * 249,
    "x" * 300,
    "-1",
    "9" * 30,
    "\n\r\x1b[2J",
    "\u202e\ud7ff",
    "__consumer_offsets",
    "__cluster_metadata",
    "known-0",
    "retention.ms",
    "segment.bytes",
    "cleanup.policy",
    "tidelog.durability",
    "NaN",
    "1e309",
)
EDGES = {
    "b": (0, 1, 2, -1, 127, -128),
    "h": (0, 1, 2, -1, 3, 32767, -32768),
    "i": (0, 1, 2, -1, -2, 3, 100, 2**31 - 1, -(2**31), 2**24),
    "q": (0, 1, -1, -2, -3, -4, -5, -6, -7, 5, 2**62, 2**63 - 1, -(2**63)),
    "H": (0, 1, 65535),
    "I": (0, 1, 2**32 - 1),
    "?": (True, False),
    "d": (0.0, -1.0, 1e308, float("inf"), float("nan")),
}
# Decisions that would spoil the cluster for the requests that follow, or take as long as they are asked to.
TAMED = {"timeout_ms": (1000,), "max_wait_ms": (0, 1, 10, -1), "num_partitions": (-1, 0, 1, 3, -7, 2**31 - 1)}


class Hostile:
    """One seed's worth of requests. `topic_ids` are ids that exist."""

    def __init__(self, seed: int, topic_ids: tuple[bytes, ...]) -> None:
        self._random = Random(seed)
        self._ids = (*topic_ids, bytes(16), bytes(range(16)))

    def frame(self, key: ApiKey, version: int, correlation_id: int) -> bytes:
        """A request that its declaration allows, whatever it may mean. Without its length."""
        cls = request_class(key)
        head = request_header(key, version, correlation_id, "hostile")
        return head + encoder(cls, version)(self._object(cls, version))

    def mutated(self, frame: bytes) -> bytes:
        """The frame with a few bytes changed, cut out or put in, behind its first eight: key, version, correlation."""
        random, made = self._random, bytearray(frame)
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.randrange(8, len(made)) if len(made) > 9 else 8
            match random.randrange(6):
                case 0:
                    made[at : at + 1] = bytes([random.randrange(256)])
                case 1:
                    made[at : at + 1] = random.choice((b"\xff", b"\x7f", b"\x80", b"\0"))
                case 2:
                    made[at : at + 4] = struct.pack(">i", random.choice((-1, -2, 2**31 - 1, -(2**31), len(made))))
                case 3:
                    made[at : at + 2] = struct.pack(">h", random.choice((-1, -2, 32767, -32768)))
                case 4:
                    made[at:at] = random.choice((b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80" * 10, b"\1"))
                case _:
                    del made[at : at + random.choice((1, 2, 4, 50))]
        return bytes(made)

    def _object(self, cls: type, version: int) -> Any:
        fields = [field for field in schema(cls).fields if version in field.versions]
        return cls(**{field.name: self._field(field, version) for field in fields})

    def _field(self, field: Any, version: int) -> Any:
        random = self._random
        if version in field.nullable and random.random() < 0.2:
            return None
        if field.tag is not None and random.random() < 0.7:
            return field.make_default()
        if field.name in TAMED:
            return random.choice(TAMED[field.name])
        if field.name in ("name", "topic", "topic_name", "resource_name") and random.random() < 0.7:
            return random.choice(TOPICS)
        return self._value(field.kind, version)

    def _value(self, kind: Kind, version: int) -> Any:
        random = self._random
        match kind:
            case Fixed("16s"):
                return random.choice(self._ids)
            case Fixed(code):
                return random.choice(EDGES[code])
            case Text():
                return random.choice(TEXTS)
            case Blob(view=True):
                return self._records()
            case Blob():
                return random.randbytes(random.choice((0, 1, 16, 1000)))
            case Structure(cls):
                return self._object(cls, version)
            case Array(of):
                return [self._value(of, version) for _ in range(random.choice((0, 1, 1, 2, 3)))]

    def _records(self) -> bytes:
        random = self._random
        producer = random.choice(
            (ANYONE, ANYONE, Producer(7, 0, random.choice((0, 1, 5, 2**31 - 1))), Producer(7, -1, -1))
        )
        batch = Batch([Sent(b"v" * random.choice((1, 100)))] * random.choice((1, 1, 3)), producer, random.randrange(5))
        if random.random() < 0.5:
            name = random.choice(("base_offset", "last_offset_delta", "count", "length", "attributes", "magic", "crc"))
            code = {"magic": "b", "attributes": "h", "base_offset": "q", "crc": "I"}.get(name, "i")
            setattr(batch, name, random.choice(EDGES[code]))
        if random.random() < 0.2:
            batch.body = random.randbytes(50)
        made = batch.encode()
        return random.choice((made, made, made, made[:-1], made + made, b"", made + b"\0" * 11))
