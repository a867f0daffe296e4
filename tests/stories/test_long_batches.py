"""Batches that take long to look into: a million records, or headers, in a few bytes. Others don't notice, and what was
sent behind such a batch on its connection comes after it.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.batches import GZIP, LZ4, NONE, NOW_MS, SNAPPY, ZSTD, Batch, Producer, Sent, compressed, varint
from tests.group_requests import find_coordinator
from tests.raw import Connection
from tests.reading import create_topic, list_offset, stored_batches
from tests.served import Tidelog
from tests.turns import WatchedBroker
from tidelog.log.record_check import ON_THE_LOOP
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.record import first_since
from tidelog.wire.records.coordinator import OFFSETS_TOPIC, RecordTypes
from tidelog.wire.records.groups import OffsetCommitKey, OffsetCommitValue

RECORDS = 1_000_000
HEADERS = 8_000_000
EMPTY_PIECES = 400_000
PEAK_MB_MAX = 150
CHILD_MB_MAX = 350
ANSWER_S = 120.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WatchedBroker]:
    with WatchedBroker(tmp_path / "data", {"tidelog.durability": "os"}) as made:
        yield made


def many_records(count: int = RECORDS) -> bytes:
    """As small as may be, with a key each."""
    bodies = (b"\0\0" + varint(place) + b"\2k\1\0" for place in range(count))
    return b"".join(varint(len(body)) + body for body in bodies)


def many_headers(count: int = HEADERS) -> bytes:
    body = b"\0\0\0\2k\1" + varint(count) + b"\0\1" * count
    return varint(len(body)) + body


def many(data: bytes, codec: int, count: int, producer: Producer | None = None) -> bytes:
    body = compressed(codec, data)
    more = {} if producer is None else {"producer": producer}
    return Batch((), codec=codec, count=count, last_offset_delta=count - 1, body=body, **more).encode()


def produce_fields(topic: str, *batches: bytes, acks: int = 1) -> dict[str, Any]:
    parts = [{"index": index, "records": made} for index, made in enumerate(batches)]
    return {"acks": acks, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": parts}]}


def produce(connection: Connection, topic: str, made: bytes) -> Any:
    return connection.ask(ApiKey.PRODUCE, 9, produce_fields(topic, made)).responses[0].partition_responses[0]


def codec_of(connection: Connection, topic: str) -> list[tuple[int, int]]:
    """(records, codec) of the batches of a topic."""
    return [(batch.count, batch.attributes & 7) for batch in stored_batches(connection, topic)]


@pytest.mark.parametrize(
    ("settings", "codec", "kept"),
    [
        ({"cleanup.policy": "compact"}, ZSTD, ZSTD),
        ({"compression.type": "gzip"}, ZSTD, GZIP),
        ({"compression.type": "zstd"}, NONE, ZSTD),
        ({"tidelog.validate": "records", "message.timestamp.type": "LogAppendTime"}, GZIP, GZIP),
    ],
    ids=["compacted", "recompressed", "compressed", "append-time"],
)
def test_a_million_records_hold_nobody_up(
    broker: WatchedBroker, settings: dict[str, str], codec: int, kept: int
) -> None:
    create_topic(broker.bootstrap, "t", 1, settings | {"max.message.bytes": "20000000"})
    made = many(many_records(), codec, RECORDS)
    with Connection(broker.bootstrap, timeout_s=ANSWER_S) as connection:
        with broker.watching() as seen:
            answer = produce(connection, "t", made)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        seen.check()
        assert list_offset(connection, "t", -1) == RECORDS
        assert codec_of(connection, "t") == [(RECORDS, kept)]
        last = next(iter(stored_batches(connection, "t")))
        assert last.crc_is_right
        if "message.timestamp.type" in settings:
            assert answer.log_append_time_ms == last.max_timestamp > 0


@pytest.mark.parametrize(
    ("settings", "codec"),
    [({"cleanup.policy": "compact"}, ZSTD), ({"compression.type": "zstd"}, GZIP), ({"cleanup.policy": "compact"}, LZ4)],
)
def test_millions_of_headers_are_refused_and_hold_nobody_up(
    broker: WatchedBroker, settings: dict[str, str], codec: int
) -> None:
    create_topic(broker.bootstrap, "t", 1, settings | {"max.message.bytes": "20000000"})
    made = many(many_headers(), codec, 1)
    with Connection(broker.bootstrap, timeout_s=ANSWER_S) as connection:
        answer = broker.unheld(lambda: produce(connection, "t", made))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "tidelog.headers.max" in answer.error_message
        assert list_offset(connection, "t", -1) == 0


@pytest.mark.parametrize(
    ("codec", "empty"),
    [(GZIP, compressed(GZIP, b"")), (SNAPPY, b"\0\0\0\1\0")],
    ids=["gzip-members", "snappy-blocks"],
)
def test_pieces_that_hold_nothing_hold_nobody_up(broker: WatchedBroker, codec: int, empty: bytes) -> None:
    create_topic(broker.bootstrap, "t", 1, {"cleanup.policy": "compact", "max.message.bytes": "20000000"})
    made = Batch(
        [Sent(key=b"k")], codec=codec, body=compressed(codec, b"")[:16] * (codec == SNAPPY) + empty * EMPTY_PIECES
    )
    with Connection(broker.bootstrap, timeout_s=ANSWER_S) as connection:
        answer = broker.unheld(lambda: produce(connection, "t", made.encode()))
        assert answer.error_code == ErrorCode.INVALID_RECORD


def test_a_thousand_short_batches_in_one_write_hold_nobody_up(broker: WatchedBroker) -> None:
    """Each of them is short enough for the loop, but all of them aren't."""
    create_topic(broker.bootstrap, "t", 1, {"cleanup.policy": "compact"})
    count, requests = 2000, 1000
    made = Batch((), codec=ZSTD, count=count, last_offset_delta=count - 1, body=compressed(ZSTD, many_records(count)))
    with Connection(broker.bootstrap, timeout_s=ANSWER_S) as connection:
        with broker.watching() as seen:
            sent = [connection.send(ApiKey.PRODUCE, 9, produce_fields("t", made.encode())) for _ in range(requests)]
            answers = [connection.answer(ApiKey.PRODUCE, 9, number) for number in sent]
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
        assert offsets == [number * count for number in range(requests)]
        seen.check()


def test_a_short_batch_for_each_of_many_partitions_holds_nobody_up(broker: WatchedBroker) -> None:
    partitions, count = 200, 2000
    create_topic(broker.bootstrap, "t", partitions, {"cleanup.policy": "compact"})
    made = many(many_records(count), ZSTD, count)
    with Connection(broker.bootstrap, timeout_s=ANSWER_S) as connection:
        connection.ask(ApiKey.PRODUCE, 9, produce_fields("t", *[Batch([Sent(key=b"k")]).encode()] * partitions))
        with broker.watching() as seen:
            answer = connection.ask(ApiKey.PRODUCE, 9, produce_fields("t", *[made] * partitions))
        parts = answer.responses[0].partition_responses
        assert [(part.error_code, part.base_offset) for part in parts] == [(0, 1)] * partitions
        seen.check()


def test_what_is_sent_behind_a_long_batch_comes_after_it(broker: WatchedBroker) -> None:
    """Of an idempotent producer with five requests on their way; and acks=0 among them."""
    create_topic(broker.bootstrap, "t", 1, {"cleanup.policy": "compact", "max.message.bytes": "20000000"})
    count = 100_000
    with Connection(broker.bootstrap, timeout_s=ANSWER_S) as connection:
        pid = connection.ask(
            ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 60_000}
        ).producer_id
        long, one = many_records(count), Batch([Sent(key=b"k")])
        sent: list[int] = []
        sequence = 0
        for place in range(6):
            producer = Producer(pid, 0, sequence)
            one.producer = producer
            made = one.encode() if place % 2 else many(long, ZSTD, count, producer)
            sequence += 1 if place % 2 else count
            sent.append(connection.send(ApiKey.PRODUCE, 9, produce_fields("t", made, acks=-1)))
        answers = [connection.answer(ApiKey.PRODUCE, 9, number) for number in sent]
        parts = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [part.error_code for part in parts] == [0] * 6
        firsts = [part.base_offset for part in parts]
        assert firsts == [place // 2 * (count + 1) + place % 2 * count for place in range(6)]
        connection.send(ApiKey.PRODUCE, 9, produce_fields("t", many(long, ZSTD, count), acks=0))
        end = list_offset(connection, "t", -1)
        assert end == 3 * (count + 1) + count


@pytest.mark.parametrize("settings", [{"cleanup.policy": "compact"}, {"compression.type": "gzip"}])
def test_an_idempotent_producer_of_large_batches_loses_nothing_and_keeps_its_order(
    tidelog: Tidelog, settings: dict[str, str]
) -> None:
    create_topic(tidelog.bootstrap, "t", 1, settings)
    count = 100_000
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": tidelog.bootstrap,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 200,
            "batch.num.messages": 30_000,
            "batch.size": 5_000_000,
            "queue.buffering.max.messages": count,
        }
    )
    for number in range(count):
        producer.produce("t", b"%d" % number, b"%d" % number)
    assert producer.flush(ANSWER_S) == 0
    with Connection(tidelog.bootstrap) as connection:
        assert max(batch.count for batch in stored_batches(connection, "t")) > ON_THE_LOOP.records
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": tidelog.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    read: list[bytes | None] = []
    until = time.monotonic() + ANSWER_S
    while len(read) < count and time.monotonic() < until:
        read += [message.value() for message in consumer.consume(10_000, 1.0)]
    consumer.close()
    assert read == [b"%d" % number for number in range(count)]


def test_one_request_with_long_batches_and_short_ones(broker: WatchedBroker) -> None:
    create_topic(broker.bootstrap, "t", 3, {"cleanup.policy": "compact", "max.message.bytes": "20000000"})
    batches = (Batch([Sent(key=b"k")]).encode(), many(many_records(50_000), ZSTD, 50_000), Batch([Sent()]).encode())
    with Connection(broker.bootstrap, timeout_s=ANSWER_S) as connection:
        answer = connection.ask(ApiKey.PRODUCE, 9, produce_fields("t", *batches, acks=-1))
        parts = answer.responses[0].partition_responses
        assert [part.error_code for part in parts] == [0, 0, ErrorCode.INVALID_RECORD]
        assert [list_offset(connection, "t", -1, index) for index in range(3)] == [1, 50_000, 0]


def test_a_time_is_looked_for_by_another_process(broker: WatchedBroker) -> None:
    """A thread would hold the interpreter, and with it the loop: what it takes isn't this process's time at all."""
    create_topic(broker.bootstrap, "t", 1, {"max.message.bytes": "20000000"})
    data = many_records()
    lie = Batch((), codec=ZSTD, count=RECORDS, last_offset_delta=RECORDS - 1, max_timestamp=NOW_MS + 1000)
    lie.body = compressed(ZSTD, data)
    part = {"partition_index": 0, "timestamp": NOW_MS + 500}
    fields = {"replica_id": -1, "topics": [{"name": "t", "partitions": [part]}]}
    with Connection(broker.bootstrap, timeout_s=ANSWER_S) as connection:
        assert produce(connection, "t", lie.encode()).error_code == 0
        began = time.thread_time()
        first_since(data, RECORDS, 0, 1, 0)
        takes = time.thread_time() - began
        connection.ask(ApiKey.LIST_OFFSETS, 5, fields)  # whoever looks is started
        before = time.process_time()
        with broker.watching() as seen:
            found = [connection.ask(ApiKey.LIST_OFFSETS, 5, fields).topics[0].partitions[0] for _ in range(3)]
        spent = time.process_time() - before
    assert [(each.error_code, each.offset) for each in found] == [(0, -1)] * 3
    seen.check()
    assert spent < takes, f"3 searches took {spent:.3f} s of CPU here, one of them takes {takes:.3f} s"


def test_many_partitions_are_searched_in_turn_with_others(broker: WatchedBroker) -> None:
    create_topic(broker.bootstrap, "t", 100)
    lie = Batch((), count=9000, last_offset_delta=8999, body=many_records(9000), max_timestamp=NOW_MS + 1000)
    batch = lie.encode()
    with Connection(broker.bootstrap, timeout_s=ANSWER_S) as connection:
        for index in range(100):
            data = [{"index": index, "records": batch}]
            fields = {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "t", "partition_data": data}]}
            assert not connection.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0].error_code
        # No record is as new as that, though the header says so: all are walked.
        parts = [{"partition_index": index, "timestamp": NOW_MS + 500} for index in range(100)]
        fields = {"topics": [{"name": "t", "partitions": parts}]}
        asked = broker.unheld(lambda: connection.ask(ApiKey.LIST_OFFSETS, 5, fields))
        assert {(each.error_code, each.offset) for each in asked.topics[0].partitions} == {(0, -1)}


def offsets_batch(group: str, count: int) -> bytes:
    """As many committed offsets in one batch of the coordinator's own topic."""
    types = RecordTypes(OFFSETS_TOPIC)
    sent = [
        Sent(
            types.encode_value(OffsetCommitValue(offset=number)),
            types.encode_key(OffsetCommitKey(group=group, topic="t", partition=number)),
        )
        for number in range(count)
    ]
    return Batch(sent).encode()


def test_a_long_batch_of_a_coordinator_is_loaded_in_steps(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "1", "tidelog.durability": "os", "offsets.retention.minutes": "1000000"}
    made = offsets_batch("g", 20_000)
    with (
        WatchedBroker(tmp_path / "data", settings) as broker,
        Connection(broker.bootstrap, client_id="__admin_client", timeout_s=ANSWER_S) as connection,
    ):
        find_coordinator(connection, "g")
        assert produce(connection, "__consumer_offsets", made).error_code == 0
        squeezed = Batch([Sent(key=b"k")], codec=ZSTD).encode()
        assert produce(connection, "__consumer_offsets", squeezed).error_code == ErrorCode.INVALID_RECORD
    with WatchedBroker(tmp_path / "data", settings) as broker:
        with Connection(broker.bootstrap, timeout_s=ANSWER_S) as connection, broker.watching() as seen:
            find_coordinator(connection, "g")
        seen.check()
        loaded = broker.call(
            lambda: [len(one.state.offsets["g"]) for one in broker.broker.services.groups.shards.loaded()]
        )
        assert loaded == [20_000]


def resident_mb(pid: int, field: str = "VmHWM") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


@pytest.mark.parametrize(
    ("settings", "codec", "data"),
    [
        ({"cleanup.policy": "compact"}, ZSTD, many_records),
        ({"compression.type": "gzip"}, ZSTD, many_records),
        ({"compression.type": "zstd"}, GZIP, many_headers),
        ({"compression.type": "zstd", "tidelog.headers.max": "100000000"}, GZIP, many_headers),
    ],
    ids=["records", "recompressed-records", "headers", "headers-allowed"],
)
def test_they_take_little_memory(tidelog: Tidelog, settings: dict[str, str], codec: int, data: Any) -> None:
    create_topic(tidelog.bootstrap, "t", 1, settings | {"max.message.bytes": "20000000"})
    count = RECORDS if data is many_records else 1
    made = many(data(), codec, count)
    with Connection(tidelog.bootstrap, timeout_s=ANSWER_S) as connection:
        produce(connection, "t", made)
    assert resident_mb(tidelog.pid) < PEAK_MB_MAX
    looking = children(tidelog.pid)
    assert len(looking) == 1
    assert resident_mb(looking[0]) < CHILD_MB_MAX


def test_a_producer_beside_them_keeps_its_pace(tidelog: Tidelog) -> None:
    """As many requests are answered beside a look as before it, or half of them: counted, while it lasts."""
    create_topic(tidelog.bootstrap, "bombed", 1, {"cleanup.policy": "compact", "max.message.bytes": "20000000"})
    create_topic(tidelog.bootstrap, "polite", 1)
    made = many(many_records(), ZSTD, RECORDS)
    polite = Batch([Sent(bytes(1000))]).encode()
    answered = threading.Event()
    with Connection(tidelog.bootstrap, timeout_s=ANSWER_S) as attacker, Connection(tidelog.bootstrap) as other:
        produce(attacker, "bombed", made)  # whoever looks is started

        def attack() -> None:
            produce(attacker, "bombed", made)
            answered.set()

        thread = threading.Thread(target=attack)
        began = time.thread_time()
        thread.start()
        count = 0
        while not answered.is_set():
            assert produce(other, "polite", polite).error_code == 0
            count += 1
        thread.join()
        assert count > 20, f"{count} requests were answered in {time.thread_time() - began:.3f} s of this thread's CPU"
