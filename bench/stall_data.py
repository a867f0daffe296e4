"""Stalls by what is in batches and logs: bombs, first uses after a restart, first writes, removal."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tests.batches import GZIP, ZSTD, Batch, Producer, Sent, compressed, varint
from tests.raw import Connection

from bench.brokers import ADMIN_TIMEOUT_S
from bench.programs import BenchError
from bench.stall_target import GIVES_UP_S, Target, frame_of
from tidelog.wire.keys import ApiKey

RECORDS = 1_000_000
HEADERS = 8_000_000
IDEMPOTENT_BATCHES = 200_000
IDEMPOTENT_PARTITIONS = 10
PIPELINED = 200
KILLED_PARTITIONS = 1500
KILLED_BATCHES = 20
WRITTEN_PARTITIONS = 8000
POLL_S = 0.01


def produce_fields(topic: str, records: Sequence[tuple[int, bytes | None]]) -> dict[str, Any]:
    """A produce request with acks=1: (partition, batch)."""
    parts = [{"index": index, "records": data} for index, data in records]
    return {"acks": 1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": parts}]}


def produce_frame(topic: str, batch: bytes) -> bytes:
    return frame_of(ApiKey.PRODUCE, 9, produce_fields(topic, [(0, batch)]))


def fetch_fields(topic: str, partitions: Sequence[int], **more: Any) -> dict[str, Any]:
    parts = [{"partition": index, "partition_max_bytes": 1 << 20} for index in partitions]
    return {"max_wait_ms": 0, "min_bytes": 1, "topics": [{"topic": topic, "partitions": parts}], **more}


def _bomb(target: Target, data: bytes, codec: int, count: int, **config: str) -> Callable[[], None]:
    batch = Batch((), codec=codec, count=count, last_offset_delta=count - 1, body=compressed(codec, data)).encode()
    target.create("bombed", 1, max_message_bytes=str(16 << 20), **config)
    return target.exchange([produce_frame("bombed", batch)])


def _many_records() -> bytes:
    """A million records with a key each, as small as may be."""
    bodies = (b"\0\0" + varint(place) + b"\2k\1\0" for place in range(RECORDS))
    return b"".join(varint(len(body)) + body for body in bodies)


def _many_headers() -> bytes:
    """One record of 8 million headers, whose names are empty and whose values are null."""
    body = b"\0\0\0" + b"\2k" + b"\1" + varint(HEADERS) + b"\0\1" * HEADERS
    return varint(len(body)) + body


def million_compacted(target: Target) -> Callable[[], None]:
    return _bomb(target, _many_records(), ZSTD, RECORDS, cleanup_policy="compact")


def million_recompressed(target: Target) -> Callable[[], None]:
    return _bomb(target, _many_records(), ZSTD, RECORDS, compression_type="gzip")


def headers_bomb_zstd(target: Target) -> Callable[[], None]:
    return _bomb(target, _many_headers(), ZSTD, 1, cleanup_policy="compact")


def headers_bomb_gzip(target: Target) -> Callable[[], None]:
    return _bomb(target, _many_headers(), GZIP, 1, compression_type="zstd")


def idempotent_restart(target: Target) -> Callable[[], None]:
    """200,000 batches of an idempotent producer in one partition, and in ten; a clean restart; then both are used."""
    target.create("one")
    target.create("ten", IDEMPOTENT_PARTITIONS)
    with Connection(target.broker.at, timeout_s=GIVES_UP_S) as connection:
        answer = connection.ask(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 60000})
        _fill(connection, "one", (0,), IDEMPOTENT_BATCHES, answer.producer_id)
        each = IDEMPOTENT_BATCHES // IDEMPOTENT_PARTITIONS
        _fill(connection, "ten", range(IDEMPOTENT_PARTITIONS), each, answer.producer_id)
    target.broker.stop()
    target.broker.start()
    last = Batch([Sent()], producer=Producer(answer.producer_id, 0, IDEMPOTENT_BATCHES)).encode()
    produce = target.exchange([produce_frame("one", last)])
    fetch = target.exchange([frame_of(ApiKey.FETCH, 12, fetch_fields("ten", range(IDEMPOTENT_PARTITIONS)))])

    def use() -> None:
        produce()
        fetch()

    return use


def _fill(connection: Connection, topic: str, partitions: Sequence[int], count: int, producer_id: int) -> None:
    """`count` batches of one record to each partition, many requests on their way at once."""
    waiting: list[int] = []

    def settle() -> None:
        answer = connection.answer(ApiKey.PRODUCE, 9, waiting.pop(0))
        codes = {part.error_code for each in answer.responses for part in each.partition_responses}
        if codes != {0}:
            raise BenchError(f"{topic} could not be filled: {codes}")

    for sequence in range(count):
        batch = Batch([Sent()], producer=Producer(producer_id, 0, sequence)).encode()
        fields = produce_fields(topic, [(index, batch) for index in partitions])
        waiting.append(connection.send(ApiKey.PRODUCE, 9, fields))
        if len(waiting) >= PIPELINED:
            settle()
    while waiting:
        settle()


def killed_restart(target: Target) -> Callable[[], None]:
    """1,500 partitions with fsync, written and killed; then one request names them all."""
    target.create("killed", KILLED_PARTITIONS, tidelog_durability="fsync")
    batch = Batch([Sent(b"v" * 1000)]).encode()
    frame = frame_of(
        ApiKey.PRODUCE, 9, produce_fields("killed", [(index, batch) for index in range(KILLED_PARTITIONS)])
    )
    with target:
        write = target.exchange([frame])
        for _ in range(KILLED_BATCHES):
            write()
    target.broker.kill()
    target.broker.start()
    return target.exchange([frame_of(ApiKey.FETCH, 12, fetch_fields("killed", range(KILLED_PARTITIONS)))])


def first_writes(target: Target) -> Callable[[], None]:
    """One request to 8,000 partitions that nobody has written to."""
    target.create("written", WRITTEN_PARTITIONS)
    batch = Batch([Sent()]).encode()
    records = [(index, batch) for index in range(WRITTEN_PARTITIONS)]
    return target.exchange([frame_of(ApiKey.PRODUCE, 9, produce_fields("written", records))])


def deleted_topic(target: Target) -> Callable[[], None]:
    """The same partitions deleted, until their files are gone."""
    first_writes(target)()

    def delete() -> None:
        admin = target.broker.admin
        with suppress(TimeoutError):
            admin.delete_topics(["written"], operation_timeout=ADMIN_TIMEOUT_S)["written"].result(ADMIN_TIMEOUT_S)
        until = time.monotonic() + GIVES_UP_S
        while any(target.broker.folder.glob("written-*")) and time.monotonic() < until:
            time.sleep(POLL_S)

    return delete
