"""Produce: every version, every codec, and batches that are wrong in every way we could think of."""

from random import Random
from typing import Any

from tests.batches import (
    CONTROL,
    DELETE_HORIZON,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    NOW_MS,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    Batch,
    Sent,
)
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
THREE = (Sent(b"one"), Sent(b"two"), Sent(b"three"))


def some_records(rng: Random, count: int | None = None) -> list[Sent]:
    """Records with and without keys, values and headers."""
    made: list[Sent] = []
    for place in range(count or rng.randint(1, 5)):
        key = rng.choice([None, b"", rng.randbytes(rng.randint(1, 20))])
        value = rng.choice([None, b"", rng.randbytes(rng.randint(1, 300))])
        headers = [(f"h{i}", rng.choice([None, b"", b"x"])) for i in range(rng.choice([0, 0, 1, 3]))]
        made.append(Sent(value, key, headers, timestamp_delta=rng.choice([0, place, -place])))
    return made


def every_version_and_codec(side: Side, rng: Random) -> None:
    topic = side.create(f"produced-{rng.getrandbits(32):08x}", 2)
    for version in versions(ApiKey.PRODUCE):
        for codec in CODECS:
            batch = Batch(some_records(rng), codec=codec)
            side.produce(topic, batch.encode(), version=version, partition=rng.randint(0, 1), note=f"codec {codec}")
        for acks in (1, -1, 2, -2):
            side.produce(topic, Batch(some_records(rng)).encode(), version=version, acks=acks, note=f"acks {acks}")
        two_partitions = {
            "acks": 1,
            "timeout_ms": 10_000,
            "topic_data": [
                side.named(topic, ApiKey.PRODUCE, version)
                | {
                    "partition_data": [
                        {"index": index, "records": Batch(some_records(rng)).encode()} for index in (0, 1, 2)
                    ]
                }
            ],
        }
        side.ask(ApiKey.PRODUCE, version, two_partitions, "two partitions and one that isn't there")
        side.ask(ApiKey.PRODUCE, version, {"acks": 1, "timeout_ms": 1000, "topic_data": []}, "nothing at all")
    side.look(topic, 2)


def unknown_topics_and_ids(side: Side, rng: Random) -> None:
    side.normaliser.learn("missing", rng.randbytes(16))
    for version in versions(ApiKey.PRODUCE):
        side.produce("missing", Batch([Sent()]).encode(), version=version, note="unknown topic")
        side.produce("missing", Batch([Sent()]).encode(), version=version, partition=-1, note="partition -1")
    topic = side.create(f"named-{rng.getrandbits(32):08x}")
    side.produce(topic, Batch([Sent()]).encode(), version=13, partition=7, note="unknown partition by id")
    side.produce(
        topic, Batch([Sent()]).encode(), version=12, transactional_id="nobody", note="transactional id, plain batch"
    )


def but(**changes: Any) -> bytes:
    """Three records in a batch that is right but for these changes."""
    return Batch(THREE, **changes).encode()


def wrong_batches() -> dict[str, bytes]:
    """A batch wrong in one way each that its header shows; its CRC is right where that isn't what is wrong."""
    whole = but()
    return {
        "no bytes": b"",
        "crc": but(crc=1),
        "magic 0": but(magic=0),
        "magic 1": but(magic=1),
        "magic 3": but(magic=3),
        "magic -1": but(magic=-1),
        "count too small": but(count=2),
        "count and delta apart": but(last_offset_delta=7),
        "delta too small": but(last_offset_delta=1),
        "negative delta": but(last_offset_delta=-1),
        "negative count": but(count=-1),
        "no records": Batch([], last_offset_delta=0, count=0).encode(),
        "no records, delta -1": Batch([]).encode(),
        "length too long": but(length=len(whole) - 12 + 1),
        "length too short": but(length=len(whole) - 12 - 1),
        "length tiny": but(length=10),
        "length negative": but(length=-5),
        "cut": whole[:-1],
        "cut in its header": whole[:40],
        "two batches": whole + whole,
        "rest behind it": whole + b"\0\0\0",
        "offset deltas": Batch([Sent(offset_delta=0), Sent(offset_delta=5)]).encode(),
        "offset deltas backwards": Batch([Sent(offset_delta=1), Sent(offset_delta=0)]).encode(),
        "codec 5": but(attributes=5),
        "codec 7": but(attributes=7),
        "transactional": but(attributes=TRANSACTIONAL),
        "control": but(attributes=CONTROL),
        "delete horizon": but(attributes=DELETE_HORIZON),
        "log append time": but(attributes=LOG_APPEND_TIME),
        "unknown attributes": but(attributes=0x4000),
        "base offset": but(base_offset=77),
        "base offset negative": but(base_offset=-1),
        "leader epoch": but(leader_epoch=9),
    }


def a_batch_that_is_wrong(side: Side, rng: Random) -> None:
    topic = side.create(f"wrong-{rng.getrandbits(32):08x}")
    for what, data in wrong_batches().items():
        for version in (3, 7, 8, 12, 13):
            side.produce(topic, data, version=version, note=what)
    side.look(topic)


def timestamps(side: Side, rng: Random) -> None:
    plain = side.create(f"times-{rng.getrandbits(32):08x}")
    stamped = side.create(f"stamped-{rng.getrandbits(32):08x}", configs={"message.timestamp.type": "LogAppendTime"})
    strict = side.create(
        f"strict-{rng.getrandbits(32):08x}",
        configs={"message.timestamp.before.max.ms": "1800000", "message.timestamp.after.max.ms": "1800000"},
    )
    cases = {
        "now": Batch([Sent()]),
        "none": Batch([Sent()], base_timestamp=-1, max_timestamp=-1),
        "an hour ago": Batch([Sent()], base_timestamp=NOW_MS - HOUR_MS),
        "in half an hour": Batch([Sent()], base_timestamp=NOW_MS + HOUR_MS // 2),
        "in two hours": Batch([Sent()], base_timestamp=NOW_MS + 2 * HOUR_MS),
        "in a year": Batch([Sent(), Sent(timestamp_delta=YEAR_MS)]),
        "out of order": Batch([Sent(timestamp_delta=50), Sent(timestamp_delta=10), Sent(timestamp_delta=30)]),
    }
    for topic in (plain, stamped, strict):
        for what, batch in cases.items():
            for codec in (NONE, GZIP):
                batch.codec = codec
                side.produce(topic, batch.encode(), note=f"{what}, codec {codec}")
        side.look(topic, stamped=topic == stamped)


def keys_and_compaction(side: Side, rng: Random) -> None:
    topic = side.create(f"compacted-{rng.getrandbits(32):08x}", configs={"cleanup.policy": "compact"})
    for version in (3, 8, 12):
        for codec in CODECS[: 4 if version < 7 else 5]:
            keyed = Batch([Sent(key=b"a"), Sent(key=b"b", value=None)], codec=codec)
            mixed = Batch([Sent(key=b"a"), Sent(key=None), Sent(key=b"")], codec=codec)
            side.produce(topic, keyed.encode(), version=version, note=f"keys, codec {codec}")
            side.produce(topic, mixed.encode(), version=version, note=f"a null key, codec {codec}")
    side.produce(topic, Batch([Sent(key=b"a")], crc=5).encode(), note="keys and a wrong crc")
    side.produce(topic, Batch([Sent(key=b"a")], body=b"\x10").encode(), note="keys and a broken record")
    side.look(topic)


def sizes(side: Side, rng: Random) -> None:
    topic = side.create(f"small-{rng.getrandbits(32):08x}", configs={"max.message.bytes": "1000"})
    for size in (100, 900, 925, 926, 927, 928, 929, 930, 931, 932, 933, 934, 935, 1100, 5000):
        side.produce(topic, Batch([Sent(b"x" * size)]).encode(), note=f"{size} bytes")
        side.produce(topic, Batch([Sent(b"x" * size)], codec=GZIP).encode(), note=f"{size} bytes in gzip")
    side.look(topic)


def recompressed(side: Side, rng: Random) -> None:
    """A topic with a codec of its own: what is stored holds the same records, in that codec."""
    for kind in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        topic = side.create(f"{kind}-{rng.getrandbits(32):08x}", configs={"compression.type": kind})
        for codec in CODECS:
            side.produce(topic, Batch(some_records(rng), codec=codec).encode(), note=f"codec {codec} to {kind}")
        broken = Batch([Sent(b"one")], codec=GZIP if kind != "gzip" else ZSTD, body=b"\x7f\x00\x01").encode()
        side.produce(topic, broken, note=f"a broken record to {kind}")
        side.look(topic)


SCRIPTS = (
    every_version_and_codec,
    unknown_topics_and_ids,
    a_batch_that_is_wrong,
    timestamps,
    keys_and_compaction,
    sizes,
    recompressed,
)
