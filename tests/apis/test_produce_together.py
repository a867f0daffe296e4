"""Produce requests that came in one read are written at once, answered and stored as if each had come by itself."""

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apis.sim_broker import NOW_MS, Asked, SimBroker, batch, produce_fields
from tests.apis.test_produce_path import frames
from tests.batches import Producer
from tests.raw import build, request_class
from tidelog.log.names import LOG
from tidelog.log.producer_snapshot import encode_snapshot
from tidelog.wire.batch import TRANSACTIONAL_FLAG
from tidelog.wire.codec import encoder
from tidelog.wire.header import request_header
from tidelog.wire.keys import ApiKey

OS = {"tidelog.durability": "os"}
TOPICS = {
    "tide": {**OS, "index.interval.bytes": "100"},
    "small": {**OS, "internal.segment.bytes": "400", "index.interval.bytes": "100"},
    "indexed": {**OS, "segment.index.bytes": "100", "index.interval.bytes": "1"},
    "dated": {**OS, "message.timestamp.type": "LogAppendTime"},
    "often": {**OS, "flush.messages": "3"},
    "synced": {},
    "fleeting": {"tidelog.storage": "memory", "retention.bytes": "4000"},
}
MOST = 64

Change: TypeAlias = Callable[[SimBroker, str], None]


def usual(topic: str, records: bytes | None, correlation_id: int = 7, acks: int = -1, client: str = "tester") -> bytes:
    message = request_class(ApiKey.PRODUCE)
    body = encoder(message, 10)(build(message, produce_fields(topic, records, acks=acks)))
    return request_header(ApiKey.PRODUCE, 10, correlation_id, client) + body


def send_together(broker: SimBroker, sent: list[bytes]) -> tuple[list[Asked], int]:
    """As a connection does with what one read brought; how many were handled together with others, too."""
    asked: list[Asked] = []
    start, together = 0, 0
    whole = memoryview(bytearray(b"".join(struct.pack(">i", len(frame)) + frame for frame in sent)))
    while start < len(whole):
        several = broker.dispatch.handle_alike(whole, start, len(whole), MOST)
        if several is None:
            frame = sent[len(asked)]
            asked.append(broker.send_frame(frame))
            start += 4 + len(frame)
            continue
        answers, start = several
        together += len(answers)
        asked += [broker.answered(ApiKey.PRODUCE, 10, answer) for answer in answers]
    return asked, together


def state(broker: SimBroker, topic: str) -> tuple[Any, ...]:
    partition = broker.partition(topic)
    log = partition.log
    stored = b"".join(bytes(log.segments.file_of(segment).read(0, 1 << 20)) for segment in log.segments)
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
    ends = log.log_start, log.log_end, log.durable_end, partition.high_watermark, log.ends.batches
    return ends, stored, known, encode_snapshot(log.producers.items())


def of_producer(
    sequence: int, value: bytes = b"value", *, producer_id: int = 7, epoch: int = 0, attributes: int = 0
) -> bytes:
    return batch(value, producer=Producer(producer_id, epoch, sequence), attributes=attributes)


ODD = st.sampled_from(
    [
        of_producer(0, producer_id=8),
        of_producer(3, producer_id=8),
        of_producer(0, producer_id=9, attributes=TRANSACTIONAL_FLAG),
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
)
FINE = st.builds(batch, st.binary(max_size=80), at_ms=st.integers(NOW_MS - 5, NOW_MS + 5))


@st.composite
def reads(draw: st.DrawFn) -> list[bytes]:
    """What one read brings: mostly for one partition, mostly fine, and of an idempotent producer half of the time."""
    topic = draw(st.sampled_from(["tide", "tide", *TOPICS]))
    idempotent = draw(st.booleans())
    sequence, epoch = draw(st.integers(0, 3)), draw(st.sampled_from([0, 0, 0, 1]))
    sent: list[bytes] = []
    for _ in range(draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["usual"] * 14 + ["odd", "any"]))
        if kind == "any":
            sent.append(draw(frames()))
            continue
        if kind == "odd":
            records = draw(ODD)
        elif idempotent:
            records = of_producer(sequence, epoch=epoch)
            sequence += draw(st.sampled_from([1] * 10 + [0, 2]))
        else:
            records = draw(FINE)
        acks = draw(st.sampled_from([-1] * 12 + [0, 1]))
        client = draw(st.sampled_from(["tester"] * 12 + ["other", ""]))
        sent.append(usual(topic, records, draw(st.integers(0, 2**31 - 1)), acks, client))
    return sent


def alter(name: str, value: str) -> Change:
    configs = [{"name": name, "config_operation": 0, "value": value}]

    def change(broker: SimBroker, topic: str) -> None:
        resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
        broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})

    return change


def lead_anew(broker: SimBroker, topic: str) -> None:
    partition = broker.partition(topic)
    partition.follow_image(partition.image._replace(leader_epoch=partition.leader_epoch + 1))


def make_anew(broker: SimBroker, topic: str) -> None:
    broker.delete_topic(topic)
    broker.make_topic(topic, 1, TOPICS[topic])


CHANGES = st.sampled_from(
    [
        alter("message.timestamp.type", "LogAppendTime"),
        alter("max.message.bytes", "90"),
        alter("tidelog.durability", "fsync"),
        alter("tidelog.durability", "os"),
        alter("flush.messages", "2"),
        alter("compression.type", "gzip"),
        lead_anew,
        make_anew,
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(reads(), st.sampled_from(sorted(TOPICS)), st.one_of(st.none(), st.none(), CHANGES)),
        min_size=1,
        max_size=6,
    )
)
def test_together_is_as_one_by_one(steps: list[tuple[list[bytes], str, Change | None]]) -> None:
    together, apart = SimBroker(), SimBroker()
    for broker in (together, apart):
        for name, configs in TOPICS.items():
            broker.make_topic(name, 1, configs)
            broker.send_frame(usual(name, batch()))
    for sent, topic, change in steps:
        asked, _ = send_together(together, sent)
        singly = [apart.send_frame(frame) for frame in sent]
        for broker in (together, apart):
            broker.settle()
        assert [each.outcome for each in asked] == [each.outcome for each in singly]
        if change is not None:
            for broker in (together, apart):
                change(broker, topic)
    for name in TOPICS:
        assert state(together, name) == state(apart, name)


def produced(asked: list[Asked]) -> list[tuple[int, int]]:
    parts = [each.response.responses[0].partition_responses[0] for each in asked]
    return [(part.error_code, part.base_offset) for part in parts]


def written(broker: SimBroker) -> list[str]:
    """What is written from now on, a path for each write."""
    paths: list[str] = []

    def touched(what: str, path: str) -> None:
        if what == "append" and path.endswith(LOG):
            paths.append(path)

    broker.disk.touched = touched
    return paths


def test_what_a_client_sends_without_waiting_is_one_write() -> None:
    broker = SimBroker()
    broker.make_topic("tide", 1, OS)
    broker.send_frame(usual("tide", batch(b"first")))
    paths = written(broker)
    asked, together = send_together(broker, [usual("tide", batch(b"x" * n), n) for n in range(70)])
    assert together == 70
    assert len(paths) == 2  # 64 of them, and 6
    assert produced(asked) == [(0, offset) for offset in range(1, 71)]
    assert [struct.unpack_from(">i", each.frame or b"")[0] for each in asked] == list(range(70))


def test_an_idempotent_producers_batches_are_one_write_and_one_sync_acknowledges_all() -> None:
    broker = SimBroker()
    broker.make_topic("tide", 1)
    broker.send_frame(usual("tide", of_producer(0)))
    broker.settle()
    paths = written(broker)
    broker.hold_syncs()
    asked, together = send_together(broker, [usual("tide", of_producer(n), n) for n in range(1, 6)])
    assert together == 5
    assert len(paths) == 1
    assert not any(each.done for each in asked)
    broker.let_sync()
    assert produced(asked) == [(0, offset) for offset in range(1, 6)]
    again, _ = send_together(broker, [usual("tide", of_producer(n), n) for n in range(1, 6)])
    broker.settle()
    assert produced(again) == produced(asked)
    assert broker.partition("tide").log.log_end == 6


def test_acks_that_nobody_waits_for_end_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """A connection whose peer has gone begins none of them: their time is over all the same."""
    broker = SimBroker()
    broker.make_topic("tide", 1)
    broker.send_frame(usual("tide", batch()))
    broker.settle()
    broker.hold_syncs()
    sent = [usual("tide", batch(b"x" * n), n) for n in range(3)]
    whole = memoryview(bytearray(b"".join(struct.pack(">i", len(frame)) + frame for frame in sent)))
    several = broker.dispatch.handle_alike(whole, 0, len(whole), MOST)
    assert several is not None
    assert [answer.runs_ahead for answer in several[0]] == [True] * 3
    broker.pass_time(2.0)
    assert caplog.records == []
    broker.let_sync()
    assert broker.partition("tide").high_watermark == 4


def test_a_full_disk_refuses_each_and_the_log_goes_on() -> None:
    broker = SimBroker()
    broker.make_topic("tide", 1, OS)
    broker.send_frame(usual("tide", of_producer(0)))
    stored = state(broker, "tide")
    sent = [usual("tide", of_producer(n, bytes(500)), n) for n in range(1, 6)]
    broker.disk.capacity = broker.disk.used_bytes() + 100
    asked, together = send_together(broker, sent)
    assert not together
    assert all(code for code, _ in produced(asked))
    assert state(broker, "tide") == stored
    broker.disk.capacity = None
    send_together(broker, sent[:1])
    asked, together = send_together(broker, sent[1:])
    assert together == 4
    assert produced(asked) == [(0, offset) for offset in range(2, 6)]


def test_where_nothing_is_appended_nothing_is_synced() -> None:
    broker = SimBroker()
    broker.make_topic("tide", 1)
    broker.send_frame(usual("tide", of_producer(0)))
    broker.settle()
    broker.hold_syncs()
    broker.send_frame(usual("tide", of_producer(1)))
    broker.settle()  # its sync is under way
    log = broker.partition("tide").log
    assert not log.unsynced.requested
    asked, together = send_together(broker, [usual("tide", of_producer(9), n) for n in range(3)])
    assert not together
    assert all(code for code, _ in produced(asked))
    assert not log.unsynced.requested


def test_one_whose_client_has_gone_before_it_waited_is_no_bug_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    """As where the answers before it can't be sent: the connection is closed then, and it is never begun."""
    broker = SimBroker()
    broker.make_topic("tide", 1)
    broker.send_frame(usual("tide", batch()))
    broker.settle()
    broker.hold_syncs()
    sent = b"".join(struct.pack(">i", len(frame)) + frame for frame in [usual("tide", batch())] * 3)
    several = broker.dispatch.handle_alike(memoryview(bytearray(sent)), 0, len(sent), MOST)
    assert several is not None
    assert len(several[0]) == 3
    broker.pass_time(5.0)
    assert not caplog.records
    broker.let_sync()
    assert broker.partition("tide").high_watermark == 4
