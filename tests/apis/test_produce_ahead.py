"""Produce requests that wait behind one whose log is being made: the new logs that they need are made with it."""

import struct

import pytest

from tests.apis.sim_broker import SimBroker, batch, produce_fields
from tests.raw import build, request_class
from tidelog.apis.produce import BEGUN_AHEAD_MAX, BEGUN_AHEAD_MIN
from tidelog.log.bounds import BEGUN_AT_ONCE_MAX
from tidelog.wire.codec import encoder
from tidelog.wire.header import request_header
from tidelog.wire.keys import ApiKey

PARTITIONS = 200


@pytest.fixture
def broker() -> SimBroker:
    """So many logs were begun that no more are on the loop; and whatever threads do is held."""
    broker = SimBroker()
    broker.make_topic("others", BEGUN_AT_ONCE_MAX)
    broker.make_topic("tide", PARTITIONS)
    for partition in range(BEGUN_AT_ONCE_MAX):
        broker.partition("others", partition).begin()
    broker.hold_syncs()
    return broker


def request(partition: int, version: int = 10, topic: str = "tide") -> bytes:
    message = request_class(ApiKey.PRODUCE)
    body = encoder(message, version)(build(message, produce_fields(topic, batch(), partition=partition)))
    return framed(request_header(ApiKey.PRODUCE, version, partition, "tester") + body)


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def begun_by(broker: SimBroker, waiting: bytes) -> list[int]:
    """The partitions whose logs are being made once these requests were looked at."""
    view = memoryview(bytearray(waiting))
    broker.dispatch.begin_ahead(view, 0, len(view))
    return [index for index in range(PARTITIONS) if ("tide", index) in broker.services.store.beginnings]


def test_logs_of_requests_that_wait_are_begun_in_few_jobs_and_each_is_written_in_its_turn(broker: SimBroker) -> None:
    frames = [request(partition) for partition in range(32)]
    asked = [broker.send_frame(frames[0][4:])]
    assert begun_by(broker, b"".join(frames[1:])) == list(range(32))
    assert all(broker.partition("tide", partition).log.log_end == 0 for partition in range(32))
    broker.settle()
    assert broker.loop.held_work is not None
    assert len(broker.loop.held_work) == 2  # 16 logs each
    broker.let_sync()
    asked += [broker.send_frame(frame[4:]) for frame in frames[1:]]
    assert [broker.answer(each).responses[0].partition_responses[0].base_offset for each in asked] == [0] * 32
    broker.check()


def test_a_look_begins_no_more_logs_than_take_some_milliseconds(broker: SimBroker) -> None:
    waiting = b"".join(map(request, range(PARTITIONS)))
    assert begun_by(broker, waiting) == list(range(BEGUN_AHEAD_MAX))


def test_while_threads_have_enough_to_do_nothing_is_looked_at(broker: SimBroker) -> None:
    begun = begun_by(broker, b"".join(map(request, range(BEGUN_AHEAD_MIN))))
    assert begun_by(broker, request(PARTITIONS - 1)) == begun == list(range(BEGUN_AHEAD_MIN))


@pytest.mark.parametrize(
    "other",
    [
        framed(request_header(ApiKey.METADATA, 9, 1, "tester") + bytes(20)),
        framed(b""),
        framed(bytes(40)),
        struct.pack(">i", -1) + bytes(40),
        struct.pack(">i", 1 << 30) + bytes(40),
        request(7)[:-5],
        request(7, version=8),
    ],
    ids=["another API", "empty", "zeros", "a negative length", "one that isn't whole", "cut", "an older version"],
)
def test_what_has_another_shape_ends_the_look(broker: SimBroker, other: bytes) -> None:
    assert begun_by(broker, request(5) + other + request(6)) == [5]


def test_a_topic_or_partition_that_is_not_there_is_passed_over(broker: SimBroker) -> None:
    waiting = request(0, topic="ebb") + request(PARTITIONS) + request(5)
    assert begun_by(broker, waiting) == [5]
