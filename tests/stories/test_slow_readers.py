"""Who asks for much and reads late: small answers are mapped pieces of a segment that grows, rolls and is deleted."""

import struct
from contextlib import suppress
from threading import Thread

from tests.batches import Batch, Sent
from tests.raw import Connection, build, request_class
from tests.reading import create_topic
from tests.served import Tidelog
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

FETCH_VERSION = 16
ANSWERS = 2000
VALUES = [bytes([number]) * 15_000 for number in range(64)]
CUT = 16_000
"""Bytes asked for: the batch and the beginning of the next, which is what the shortest way serves."""


def produce(connection: Connection, value: bytes) -> None:
    data = {"index": 0, "records": Batch([Sent(value)]).encode()}
    fields = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": "t", "partition_data": [data]}]}
    answer = connection.ask(ApiKey.PRODUCE, 9, fields)
    assert answer.responses[0].partition_responses[0].error_code == 0


def fetches(connection: Connection, topic_id: bytes, offsets: list[int]) -> memoryview:
    """The frames, whose correlation ids count from 1."""
    cls, frames = request_class(ApiKey.FETCH), bytearray()
    for number, offset in enumerate(offsets, 1):
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": CUT}
        sizes = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, "session_epoch": -1}
        fields = {**sizes, "topics": [{"topic_id": topic_id, "partitions": [part]}]}
        body = encoder(cls, FETCH_VERSION)(build(cls, fields))
        frame = connection.header(ApiKey.FETCH, FETCH_VERSION, number) + body
        frames += struct.pack(">i", len(frame)) + frame
    return memoryview(frames)


def send_what_goes(connection: Connection, frames: memoryview) -> memoryview:
    """Send until the broker takes no more; what is left."""
    connection.socket.settimeout(0.3)
    with suppress(TimeoutError):
        while frames:
            frames = frames[connection.socket.send(frames[: 1 << 16]) :]
    connection.socket.settimeout(30)
    return frames


def records_of(late: Connection, number: int) -> tuple[int, bytes]:
    answer = late.answer(ApiKey.FETCH, FETCH_VERSION, number).responses[0].partitions[0]
    return answer.error_code, bytes(answer.records or b"")


def test_every_answer_is_whole_though_its_segment_grew_rolled_and_went(tidelog: Tidelog) -> None:
    create_topic(tidelog.bootstrap, "t", configs={"segment.bytes": str(1 << 20)})
    offsets = [7 * number % (len(VALUES) - 1) for number in range(ANSWERS)]
    with Connection(tidelog.bootstrap) as connection, Connection(tidelog.bootstrap) as late:
        topic_id = connection.ask(ApiKey.METADATA, 12, {"topics": [{"name": "t"}]}).topics[0].topic_id
        for value in VALUES:
            produce(connection, value)
        known: dict[int, tuple[int, bytes]] = {}
        for offset in range(len(VALUES) - 1):
            late.send_bytes(bytes(fetches(late, topic_id, [offset])))
            known[offset] = records_of(late, 1)
            assert len(known[offset][1]) == CUT
            assert VALUES[offset] in known[offset][1]
        left = send_what_goes(late, fetches(late, topic_id, offsets))
        for _ in range(4):
            produce(connection, bytes(900_000))
        deleting = {"timeout_ms": 5000, "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 66}]}]}
        assert connection.ask(ApiKey.DELETE_RECORDS, 2, deleting).topics[0].partitions[0].error_code == 0
        rest = Thread(target=late.send_bytes, args=(left,))
        rest.start()
        answers = [records_of(late, number) for number in range(1, ANSWERS + 1)]
        rest.join()
    whole = next((number for number, (code, _) in enumerate(answers) if code), ANSWERS)
    assert whole > 10, "nothing was under way while the segment went"
    assert answers[:whole] == [known[offset] for offset in offsets[:whole]]
    assert {code for code, _ in answers[whole:]} <= {ErrorCode.OFFSET_OUT_OF_RANGE}
