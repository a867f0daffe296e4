"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from random import Random
from typing import Any

from tests.batches import GZIP, NOW_MS, Batch, Sent
from tests.kafka.same_answers.side import Side, versions
from tidelog.wire.keys import ApiKey


def dated(side: Side, rng: Random) -> str:
    """A topic whose records have times that go up, down and repeat, plain and compressed."""
    topic = side.create(
        f"dated-{rng.getrandbits(32):08x}", configs={"segment.bytes": "2000000", "index.interval.bytes": "100"}
    )
    for place in range(8):
        records = [Sent(f"{place}.{i}".encode(), timestamp_delta=rng.choice([0, 10, 20, 15])) for i in range(4)]
        batch = Batch(records, base_timestamp=NOW_MS + 1000 * rng.randint(0, 5), codec=GZIP if place % 3 == 2 else 0)
        side.produce(topic, batch.encode(), note="dated")
    return topic


def every_version_and_timestamp(side: Side, rng: Random) -> None:
    topic = dated(side, rng)
    empty = side.create(f"empty-{rng.getrandbits(32):08x}")
    times = [*range(-1, -9, -1), 0, 1, NOW_MS - 1, NOW_MS + 10**6, 2**62]
    times += [NOW_MS + 1000 * second + step for second in range(6) for step in (0, 1, 10, 15, 20, 21)]
    for version in versions(ApiKey.LIST_OFFSETS):
        for time in times if version in (1, 4, 7, 11) else times[:14]:
            side.list_offset(topic, time, version=version)
            if time <= 1:
                side.list_offset(empty, time, version=version)
        for isolation in (1, 9) if version >= 2 else ():
            side.list_offset(topic, -1, version=version, isolation=isolation)
        for epoch in (0, 1, 7, -2) if version >= 4 else ():
            side.list_offset(topic, -1, version=version, epoch=epoch)
        side.list_offset(topic, -1, version=version, partition=5)
        side.list_offset("missing", -1, version=version)
        twice = {"partition_index": 0, "timestamp": -1}
        fields: dict[str, Any] = {"replica_id": -1, "topics": [{"name": topic, "partitions": [twice, dict(twice)]}]}
        side.ask(ApiKey.LIST_OFFSETS, version, fields, "a partition named twice")
        fields = {"replica_id": -1, "topics": []}
        side.ask(ApiKey.LIST_OFFSETS, version, fields, "nothing")


def where_epochs_end(side: Side, rng: Random) -> None:
    topic = dated(side, rng)
    for version in versions(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        for current in (-1, 0, 1, -2):
            for epoch in (-1, 0, 1, 9, -5):
                part = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
                topics = [{"topic": topic, "partitions": [part]}]
                side.ask(
                    ApiKey.OFFSET_FOR_LEADER_EPOCH, version, {"topics": topics}, f"current {current}, asked {epoch}"
                )
        topics = [
            {"topic": "missing", "partitions": [{"partition": 0, "leader_epoch": 0}]},
            {"topic": topic, "partitions": [{"partition": 3, "leader_epoch": 0}]},
        ]
        side.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, {"topics": topics}, "not there")


def records_deleted(side: Side, rng: Random) -> None:
    for version in versions(ApiKey.DELETE_RECORDS):
        topic = dated(side, rng)
        for offset in (0, 3, 2, 9, 33, -2, 10, 31, -1, 32):
            topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
            side.ask(ApiKey.DELETE_RECORDS, version, {"topics": topics, "timeout_ms": 5000}, f"before {offset}")
            side.list_offset(topic, -2)
            side.list_offset(topic, -4)
            side.fetch(topic, max(offset, 0), note="there")
            side.fetch(topic, 0, note="at 0")
        topics = [
            {"name": topic, "partitions": [{"partition_index": 4, "offset": 0}]},
            {"name": "missing", "partitions": [{"partition_index": 0, "offset": 0}]},
        ]
        side.ask(ApiKey.DELETE_RECORDS, version, {"topics": topics, "timeout_ms": 5000}, "not there")
        side.produce(topic, Batch([Sent(b"behind")]).encode(), note="after everything was deleted")
        side.look(topic)
    compacted = side.create(f"keeps-{rng.getrandbits(32):08x}", configs={"cleanup.policy": "compact"})
    side.produce(compacted, Batch([Sent(key=b"k")]).encode())
    topics = [{"name": compacted, "partitions": [{"partition_index": 0, "offset": 1}]}]
    side.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 5000}, "of a compacted topic")


def across_segments(side: Side, rng: Random) -> None:
    """Several segments: where fetches end, what times and deletions find, how much is there."""
    topic = side.create(f"rolled-{rng.getrandbits(32):08x}", configs={"segment.bytes": "1048576"})
    for place in range(14):
        size = rng.choice([100, 60_000, 300_000])
        records = [Sent(rng.randbytes(size // 2), timestamp_delta=rng.randint(0, 500)) for _ in range(2)]
        side.produce(
            topic, Batch(records, base_timestamp=NOW_MS + place * rng.choice([0, 100])).encode(), note=f"{size}"
        )
    for version in (4, 11, 16, 18):
        for offset in range(29):
            side.fetch(topic, offset, version=version, note=f"from {offset}")
            limit = rng.choice([1, 1000, 400_000, 900_000])
            side.fetch(topic, offset, version=version, max_bytes=limit, note=f"from {offset}, max {limit}")
            side.fetch(
                topic, offset, version=version, partition_max_bytes=limit, note=f"from {offset}, part max {limit}"
            )
    for time in (*range(-6, 0), *range(NOW_MS - 50, NOW_MS + 2000, 37)):
        side.list_offset(topic, time)
    side.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": [{"topic": topic, "partitions": [0]}]})
    for offset in (1, 9, 15):
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        side.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 5000}, f"before {offset}")
        for time in (*range(-6, 0), NOW_MS, NOW_MS + 300):
            side.list_offset(topic, time, note="after a deletion")
        side.fetch(topic, offset, note="there")
    side.look(topic)


def without_timestamps(side: Side, rng: Random) -> None:
    """Batches that have none, alone and among others: none of them is found by a time."""
    alone = side.create(f"undated-{rng.getrandbits(32):08x}")
    mixed = side.create(f"half-dated-{rng.getrandbits(32):08x}", configs={"index.interval.bytes": "100"})
    for place, base in enumerate((-1, NOW_MS - 5000, -1, NOW_MS - 9000, -1, 0, NOW_MS - 5000)):
        batch = Batch([Sent(b"%d" % place), Sent(b"second")], base_timestamp=base).encode()
        side.produce(mixed, batch, note="half dated")
        if base < 0:
            side.produce(alone, batch, note="undated")
    for topic in (alone, mixed):
        for time in (*range(-6, 2), NOW_MS - 9000, NOW_MS - 5000, NOW_MS - 4999, NOW_MS):
            side.list_offset(topic, time)
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}]
        side.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 5000}, "before 3")
        for time in (-3, 0, NOW_MS - 9000):
            side.list_offset(topic, time, note="trimmed")


SCRIPTS = (across_segments, every_version_and_timestamp, where_epochs_end, records_deleted, without_timestamps)
