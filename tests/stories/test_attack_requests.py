"""Hostile requests, thousands of them, to every API that is served: each gets an answer or its connection closed.

What must not happen: a hang, the end of the process, an answer of UNKNOWN_SERVER_ERROR or a traceback in the log (which
both tell of a bug of ours), memory taken because a length field claims it, and harm to what others have stored.
"""

import socket
import struct
from pathlib import Path

import pytest

from tests.batches import Batch, Sent
from tests.raw import ClosedError, Connection, response_class
from tests.reading import create_topic, stored
from tests.served import Tidelog
from tests.stories.hostile import Hostile
from tidelog.apis.listeners import ListenerKind, served_on
from tidelog.wire.codec import decoder
from tidelog.wire.header import read_response_header
from tidelog.wire.keys import RANGES, ApiKey

EACH_VERSION = [
    (ApiKey(key), v)
    for key in sorted(served_on(ListenerKind.BROKER))
    for v in range(RANGES[key].min, RANGES[key].max + 1)
]
RSS_GROWTH_MB_MAX = 200


def resident_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) // 1024


def topic_ids(bootstrap: str) -> tuple[bytes, ...]:
    """Those that may come to harm."""
    with Connection(bootstrap) as connection:
        topics = connection.ask(ApiKey.METADATA, 12, {"topics": None}).topics
    return tuple(topic.topic_id for topic in topics if topic.name != "precious")


class Assailant:
    """Sends frame after frame; connects again when it was thrown out."""

    def __init__(self, broker: Tidelog) -> None:
        self._broker = broker
        self._connection: Connection | None = None
        self.answered = self.closed = 0

    def send(self, key: ApiKey, version: int, frame: bytes, *, silent: bool) -> None:
        """`silent`: it may be a Produce with acks=0, which has no answer; another request behind it has."""
        connection = self._connection = self._connection or Connection(self._broker.bootstrap)
        try:
            connection.send_frame(frame)
            if silent:
                connection.send_frame(connection.header(ApiKey.API_VERSIONS, 0, 2**31 - 1))
            answer = connection.read_frame()
            if silent and answer[:4] != b"\x7f\xff\xff\xff":
                self._check(key, version, answer)
                answer = connection.read_frame()
            if not silent:
                self._check(key, version, answer)
            self.answered += 1
        except ClosedError:
            self.closed += 1
            connection.close()
            self._connection = None

    def _check(self, key: ApiKey, version: int, answer: bytes) -> None:
        _, pos = read_response_header(answer, 0, key, version)
        response, end = decoder(response_class(key), version)(answer, pos)
        assert end == len(answer)
        assert "error_code=-1" not in repr(response), f"{key.name} v{version}: {response!r}"

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


@pytest.fixture
def attacked(tidelog: Tidelog) -> Tidelog:
    """A broker with something to lose."""
    for name in ("known", "recreated", "precious"):
        create_topic(tidelog.bootstrap, name, 2)
    fields = {"index": 0, "records": Batch([Sent(b"%d" % n) for n in range(10)]).encode()}
    request = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": "precious", "partition_data": [fields]}]}
    with Connection(tidelog.bootstrap) as connection:
        answer = connection.ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0]
        assert answer.error_code == 0
    return tidelog


def unharmed(broker: Tidelog) -> None:
    assert [value for _, value in stored(broker.bootstrap, "precious")] == [b"%d" % n for n in range(10)]
    said = broker.said(10_000)
    assert "Traceback" not in said, said[said.index("Traceback") - 500 :][:4000]


@pytest.mark.parametrize("seed", [1, 2])
def test_requests_without_sense_are_answered_or_refused(attacked: Tidelog, seed: int) -> None:
    hostile = Hostile(seed, topic_ids(attacked.bootstrap))
    assailant = Assailant(attacked)
    for number in range(6):
        for key, version in EACH_VERSION:
            frame = hostile.frame(key, version, number)
            assailant.send(key, version, frame, silent=key == ApiKey.PRODUCE)
    assailant.close()
    assert assailant.answered > 5 * len(EACH_VERSION)
    unharmed(attacked)


@pytest.mark.parametrize("seed", [1, 2])
def test_requests_with_bytes_changed_are_answered_or_refused(attacked: Tidelog, seed: int) -> None:
    hostile = Hostile(seed, topic_ids(attacked.bootstrap))
    assailant = Assailant(attacked)
    before = resident_mb(attacked.pid)
    for number in range(6):
        for key, version in EACH_VERSION:
            frame = hostile.mutated(hostile.frame(key, version, number))
            assailant.send(key, version, frame, silent=key == ApiKey.PRODUCE)
    assailant.close()
    assert assailant.closed > len(EACH_VERSION)
    assert resident_mb(attacked.pid) < before + RSS_GROWTH_MB_MAX
    unharmed(attacked)


def test_frames_cut_anywhere_wait_or_close_and_nothing_more(attacked: Tidelog) -> None:
    hostile = Hostile(3, topic_ids(attacked.bootstrap))
    for key, version in EACH_VERSION:
        frame = hostile.frame(key, version, 1)
        cut = frame[: len(frame) * 2 // 3]
        for claimed in (len(frame), len(cut)):
            with socket.create_connection(("127.0.0.1", attacked.port), timeout=10) as peer:
                peer.sendall(struct.pack(">i", claimed) + cut)
    unharmed(attacked)
