"""Produce requests that came together are answered, and stored, as if each had come by itself."""

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apis.harbour import NOW_MS, Asked, Harbour, batch, produce_fields
from tests.apis.test_produce_path import frames
from tests.batches import Producer
from tests.raw import build, request_class
from tidelog.log.producer_snapshot import encode_snapshot
from tidelog.wire.codec import encoder
from tidelog.wire.header import request_header
from tidelog.wire.keys import ApiKey

OS = {"tidelog.durability": "os"}
TOPICS = {
    "run": {**OS, "index.interval.bytes": "100"},
    "small": {**OS, "internal.segment.bytes": "400", "index.interval.bytes": "100"},
    "indexed": {**OS, "segment.index.bytes": "100", "index.interval.bytes": "1"},
    "dated": {**OS, "message.timestamp.type": "LogAppendTime"},
    "synced": {},
    "fleeting": {"tidelog.storage": "memory", "retention.bytes": "4000"},
}


def usual(topic: str, records: bytes | None, correlation_id: int = 7, acks: int = -1, client: str = "tester") -> bytes:
    message = request_class(ApiKey.PRODUCE)
    body = encoder(message, 10)(build(message, produce_fields(topic, records, acks=acks)))
    return request_header(ApiKey.PRODUCE, 10, correlation_id, client) + body


def send_together(broker: Harbour, sent: list[bytes]) -> tuple[list[Asked], int]:
    """As a connection does with what one read brought; how many were answered as part of a run too."""
    asked: list[Asked] = []
    start, in_runs = 0, 0
    whole = memoryview(bytearray(b"".join(struct.pack(">i", len(frame)) + frame for frame in sent)))
    while start < len(whole):
        run = broker.dispatch.handle_run(whole, start, len(whole))
        if run is None:
            frame = sent[len(asked)]
            asked.append(broker.send_frame(frame))
            start += 4 + len(frame)
            continue
        answers, start = run
        in_runs += len(answers)
        for answer in answers:
            asked.append(Asked(ApiKey.PRODUCE, 10))
            asked[-1].settle(answer)
    return asked, in_runs


def state(broker: Harbour, topic: str) -> tuple[Any, ...]:
    partition = broker.partition(topic)
    log = partition.log
    stored = b"".join(bytes(broker_file.read(0, 1 << 20)) for broker_file in map(log.file_of, log.segments))
    known = [
        (
            segment.size,
            segment.max_timestamp,
            segment.max_timestamp_offset,
            None if segment.offsets is None else segment.offsets.unsaved(),
            None if segment.times is None else segment.times.unsaved(),
        )
        for segment in log.segments
    ]
    ends = log.log_start, log.log_end, log.durable_end, partition.high_watermark, log.batches
    return ends, stored, known, encode_snapshot(log.producers.items())


fine = st.builds(batch, st.binary(max_size=80), at_ms=st.integers(NOW_MS - 5, NOW_MS + 5))
batches = st.one_of(
    *[fine] * 16,
    st.sampled_from(
        [
            batch(producer=Producer(7, 0, 0)),
            batch(producer=Producer(7, 0, 1)),
            batch(crc=1),
            batch(magic=1),
            batch(base_offset=3),
            batch(count=2),
            batch(attributes=16),
            batch(at_ms=NOW_MS + 10_000_000),
            batch(b"packed", codec=4),
            batch()[:-1],
            b"",
        ]
    ),
)


@st.composite
def reads(draw: st.DrawFn) -> list[bytes]:
    """What one read brings: mostly for one partition, and mostly fine."""
    topic = draw(st.sampled_from(["run", "run", *TOPICS]))
    sent: list[bytes] = []
    for _ in range(draw(st.integers(2, 8))):
        if draw(st.sampled_from([True] * 15 + [False])):
            acks = draw(st.sampled_from([-1] * 12 + [0, 1]))
            client = draw(st.sampled_from(["tester"] * 12 + ["other", ""]))
            sent.append(usual(topic, draw(batches), draw(st.integers(0, 2**31 - 1)), acks, client))
        else:
            sent.append(draw(frames()))
    return sent


@settings(max_examples=60, deadline=None)
@given(st.lists(reads(), min_size=1, max_size=6))
def test_together_is_as_one_by_one(all_sent: list[list[bytes]]) -> None:
    together, apart = Harbour(), Harbour()
    for broker in (together, apart):
        for name, configs in TOPICS.items():
            broker.make_topic(name, 1, configs)
            broker.send_frame(usual(name, batch()))
    for sent in all_sent:
        asked, _ = send_together(together, sent)
        singly = [apart.send_frame(frame) for frame in sent]
        for broker in (together, apart):
            broker.settle()
        assert [each.outcome for each in asked] == [each.outcome for each in singly]
    for name in TOPICS:
        assert state(together, name) == state(apart, name)


def test_what_a_client_sends_without_waiting_is_written_at_once() -> None:
    broker = Harbour()
    broker.make_topic("run", 1, OS)
    broker.send_frame(usual("run", batch(b"first")))
    asked, in_runs = send_together(broker, [usual("run", batch(b"x" * n), n) for n in range(70)])
    assert in_runs == 70
    offsets = [each.response.responses[0].partition_responses[0].base_offset for each in asked]
    assert offsets == list(range(1, 71))
    assert [struct.unpack_from(">i", each.frame or b"")[0] for each in asked] == list(range(70))


def test_a_full_disk_refuses_each_and_the_log_goes_on() -> None:
    broker = Harbour()
    broker.make_topic("run", 1, OS)
    broker.send_frame(usual("run", batch(b"first")))
    stored = state(broker, "run")
    sent = [usual("run", batch(bytes(500)), n) for n in range(5)]
    broker.disk.capacity = broker.disk.used_bytes() + 100
    asked, in_runs = send_together(broker, sent)
    assert not in_runs
    assert all(each.response.responses[0].partition_responses[0].error_code for each in asked)
    assert state(broker, "run") == stored
    broker.disk.capacity = None
    asked, in_runs = send_together(broker, sent)
    assert in_runs == 5
    assert not any(each.response.responses[0].partition_responses[0].error_code for each in asked)
    assert broker.partition("run").log.log_end == 6
