"""Batches whose header and CRC are right and whose records are not: only who looks into every record can tell."""

from random import Random

from tests.batches import GZIP, HEADER_BYTES, LZ4, NONE, NOW_MS, SNAPPY, ZSTD, Batch, Sent, varint
from tests.kafka.same_answers.scripts.produce import YEAR_MS, but
from tests.kafka.same_answers.side import Side


def broken_batches(rng: Random) -> dict[str, bytes]:
    """A batch broken in one way each."""
    body = but()[HEADER_BYTES:]
    return {
        "count too large": but(count=4, last_offset_delta=3),
        "bytes behind the records": but(body=body + b"\1\2"),
        "a record cut short": but(body=body[:-2]),
        "record length too long": but(body=varint(100) + body[1:]),
        "record length negative": but(body=varint(-3) + body[1:]),
        "no body": but(body=b""),
        "garbage body": but(body=rng.randbytes(40)),
        "garbage as gzip": but(codec=GZIP, body=rng.randbytes(40)),
        "garbage as snappy": but(codec=SNAPPY, body=rng.randbytes(40)),
        "garbage as lz4": but(codec=LZ4, body=rng.randbytes(40)),
        "garbage as zstd": but(codec=ZSTD, body=rng.randbytes(40)),
        "offset deltas in gzip": Batch([Sent(offset_delta=0), Sent(offset_delta=5)], codec=GZIP).encode(),
        "max in a year, records now": Batch([Sent()], max_timestamp=NOW_MS + YEAR_MS).encode(),
        "max long ago, records now": Batch([Sent()], max_timestamp=NOW_MS - YEAR_MS).encode(),
        "all negative": Batch([Sent()], base_timestamp=-5).encode(),
        "max -1, records now": Batch([Sent()], max_timestamp=-1).encode(),
        "max long ago, in gzip": Batch([Sent()], max_timestamp=NOW_MS - YEAR_MS, codec=GZIP).encode(),
        "a year ahead among others": Batch([Sent(), Sent(timestamp_delta=YEAR_MS)], max_timestamp=NOW_MS).encode(),
    }


def a_broken_record(side: Side, rng: Random) -> None:
    batches = broken_batches(rng)
    del batches["offset deltas in gzip"]  # Kafka fails inside, Tidelog numbers the records anew
    for what, data in batches.items():
        topic = side.create(f"broken-{rng.getrandbits(32):08x}")
        side.produce(topic, but(), note="a right one before it")
        for version in (3, 8, 12):
            side.produce(topic, data, version=version, note=what)
        side.produce(topic, but(), note="a right one behind it")
        side.look(topic)


def a_broken_record_in_a_compacted_topic(side: Side, rng: Random) -> None:
    """Keys have to be looked at here, so nobody overlooks it."""
    topic = side.create(f"keyed-{rng.getrandbits(32):08x}", configs={"cleanup.policy": "compact"})
    for what, data in broken_batches(rng).items():
        side.produce(topic, data, note=what)
    for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD):
        side.produce(topic, Batch([Sent(key=b"k")], codec=codec).encode(), note=f"a right one, codec {codec}")
    side.look(topic)


SCRIPTS = (a_broken_record, a_broken_record_in_a_compacted_topic)
