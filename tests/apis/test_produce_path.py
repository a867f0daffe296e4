"""The fast path of Produce answers byte for byte what the general way answers, and leaves the same log behind.

Two brokers live through the same requests, one of them without its fast path.
"""

import struct
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.apis.sim_broker import NOW_MS, Asked, SimBroker, batch, produce_fields
from tests.batches import Producer
from tests.raw import build, request_class
from tidelog.wire.codec import encoder
from tidelog.wire.keys import ApiKey

LONG, LONGER = "l" * 126, "m" * 127
TOPICS = {
    "t": {},
    LONG: {"tidelog.durability": "os"},
    LONGER: {},
    "n" * 249: {},
    "dated": {"message.timestamp.type": "LogAppendTime"},
    "small": {"max.message.bytes": "90"},
    "packed": {"compression.type": "zstd"},
    "walked": {"tidelog.validate": "records", "cleanup.policy": "compact"},
    "fleeting": {"tidelog.storage": "memory"},
}
NAMES = [*TOPICS, "", "nobody", "bö", "x" * 130, "__consumer_offsets"]


class Pair:
    def __init__(self) -> None:
        self.brokers = [SimBroker(), SimBroker(fast=False)]
        self.ids = [broker.make_topic(name, 2, configs) for broker in self.brokers for name, configs in TOPICS.items()]
        self.asked: list[list[Asked]] = []

    def send(self, frame: bytes) -> None:
        self.asked.append([broker.send_frame(frame) for broker in self.brokers])

    def check(self) -> None:
        for fast, general in self.asked:
            assert fast.outcome == general.outcome
        for name in TOPICS:
            for index in range(2):
                assert self._state(0, name, index) == self._state(1, name, index)

    def _state(self, number: int, topic: str, index: int) -> tuple[Any, ...]:
        partition = self.brokers[number].partition(topic, index)
        log = partition.log
        stored = log.read(0, 1 << 20, log.log_end) if log.log_end else None
        return log.log_end, log.durable_end, partition.high_watermark, None if stored is None else bytes(stored.view())

    def live_through(self, *, held: bool) -> None:
        """Compare, let time pass, compare: twice with syncs held back, and once when everything was answered."""
        self.check()
        for seconds in (0.3, 2.0) if held else (0.001, 2.0):
            for broker in self.brokers:
                broker.pass_time(seconds)
            self.check()
        for broker in self.brokers:
            broker.let_sync()
            broker.check()
        self.check()
        assert all(asked.done for both in self.asked for asked in both)


producers = st.sampled_from([Producer(), Producer(7, 0, 0), Producer(7, 0, 1), Producer(7, 0, 5), Producer(7, 1, 0)])
batches = st.one_of(
    st.builds(batch, st.binary(max_size=20), producer=producers),
    st.builds(batch, st.binary(max_size=200), st.just(b"two"), producer=producers, codec=st.sampled_from([0, 1, 2, 4])),
    st.sampled_from(
        [
            b"",
            None,
            b"\0" * 61,
            batch(crc=1),
            batch(magic=1),
            batch(base_offset=3),
            batch(count=2),
            batch(length=20),
            batch(length=-5),
            batch(attributes=8),
            batch(attributes=32),
            batch(attributes=64),
            batch(last_offset_delta=-1, count=0),
            batch(at_ms=NOW_MS + 10_000_000),
            batch(at_ms=-1),
            batch() + batch(),
            batch() + b"tail",
            batch()[:-1],
            batch()[:30],
        ]
    ),
)
partitions = st.fixed_dictionaries({"index": st.sampled_from([0, 0, 0, 1, 2, -1]), "records": batches})
topics = st.fixed_dictionaries(
    {
        "name": st.one_of(st.sampled_from(["t", "dated"]), st.sampled_from(NAMES)),
        "topic_id": st.just(bytes(16)),
        "partition_data": st.one_of(st.lists(partitions, min_size=1, max_size=1), st.lists(partitions, max_size=3)),
    }
)
bodies = st.fixed_dictionaries(
    {
        "transactional_id": st.sampled_from([None, None, None, "", "txn"]),
        "acks": st.sampled_from([-1, -1, 1, 0, 7, -2]),
        "timeout_ms": st.sampled_from([0, 1, 100, 30_000, -1]),
        "topic_data": st.one_of(st.lists(topics, min_size=1, max_size=1), st.lists(topics, max_size=3)),
    }
)
clients = st.sampled_from([None, "", "client", "bö", "c" * 300])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A produce request: usually right, sometimes with tags in its header, cut, with a tail or a byte changed."""
    version = draw(st.sampled_from([9, 9, 10, 11, 12, 12, 8, 3]))
    body = encoder(request_class(ApiKey.PRODUCE), version)(build(request_class(ApiKey.PRODUCE), draw(bodies)))
    client = draw(clients)
    name = b"" if client is None else client.encode()
    head = struct.pack(">hhih", 0, version, draw(st.integers(-(2**31), 2**31 - 1)), -1 if client is None else len(name))
    tags = draw(st.sampled_from([b"\0", b"\0", b"\0", b"\1\0\2ab", b"\2\0\0\5\1x"])) if version >= 9 else b""
    frame = head + name + tags + body
    damage = draw(st.sampled_from(["none"] * 6 + ["cut", "tail", "byte"]))
    if damage == "cut":
        return frame[: draw(st.integers(10, len(frame)))]
    if damage == "tail":
        return frame + draw(st.sampled_from([b"\0", b"\0\0\0", b"tail"]))
    if damage == "byte":
        # Behind the client id: one that isn't UTF-8 is refused by the general way only, which harms nobody.
        place = draw(st.integers(len(head) + len(name), len(frame) - 1))
        return frame[:place] + bytes([draw(st.integers(0, 255))]) + frame[place + 1 :]
    return frame


@settings(max_examples=150, deadline=None)
@given(st.lists(frames(), min_size=1, max_size=5), st.booleans())
def test_both_ways_answer_the_same_bytes(sent: list[bytes], held: bool) -> None:
    pair = Pair()
    if held:
        for broker in pair.brokers:
            broker.hold_syncs()
    for frame in sent:
        pair.send(frame)
        if not held:
            for broker in pair.brokers:
                broker.settle()
    pair.live_through(held=held)


@pytest.mark.parametrize("topic", ["t", LONG])
def test_the_usual_request_takes_the_fast_path(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SimBroker()
    broker.make_topic(topic)
    no_handler = Mock(side_effect=AssertionError("it took the general way"))
    monkeypatch.setattr("tidelog.apis.shared.api.handler", no_handler)
    for acks, version in ((-1, 9), (1, 10), (0, 12)):
        asked = broker.send(ApiKey.PRODUCE, version, produce_fields(topic, batch(), acks=acks))
        broker.settle()
        assert asked.done
        assert asked.closed is None
    assert broker.partition(topic).log.log_end == 3


@pytest.mark.parametrize("size", [125, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152])
def test_the_length_of_a_batch_may_take_one_to_four_bytes(size: int) -> None:
    brokers = [SimBroker(), SimBroker(fast=False)]
    value = bytes(size - 60)
    while len(batch(value)) > size:
        value = value[:-1]
    assert len(batch(value)) == size
    answers: list[bytes | None] = []
    for broker in brokers:
        broker.make_topic("t")
        asked = broker.send(ApiKey.PRODUCE, 10, produce_fields("t", batch(value)))
        broker.settle()
        answers.append(asked.frame)
        assert broker.partition("t").log.log_end == 1
    assert answers[0] == answers[1]
