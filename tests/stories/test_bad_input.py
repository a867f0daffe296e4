"""Bad input: the protocol's own error or a closed connection, a clear line in the log, and the broker serves on."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.batches import Batch, Sent
from tests.raw import ClosedError, Connection
from tests.reading import create_topic, fetch
from tests.served import Tidelog
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import RANGES, ApiKey

TOPIC = "victim"
SLOW_S = 1.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tidelog]:
    with Tidelog(tmp_path_factory.mktemp("bad") / "data") as tidelog:
        create_topic(tidelog.bootstrap, TOPIC)
        yield tidelog


@pytest.fixture
def connection(broker: Tidelog) -> Iterator[Connection]:
    with Connection(broker.bootstrap, timeout_s=5.0) as opened:
        yield opened


@pytest.fixture(autouse=True)
def serves_on(broker: Tidelog) -> Iterator[None]:
    """Whatever a test did, the next client is served, and nothing was blamed on the broker itself."""
    yield
    with Connection(broker.bootstrap) as after:
        assert produce(after, Batch([Sent(b"after")]).encode()).error_code == 0
    assert "Traceback" not in broker.said(200), broker.said(200)


def produce(connection: Connection, records: bytes | None, topic: str = TOPIC, partition: int = 0) -> Any:
    parts = [{"index": partition, "records": records}]
    fields = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": topic, "partition_data": parts}]}
    return connection.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def told_while(broker: Tidelog, word: str, act: Callable[[], None]) -> str:
    """What the broker wrote to its log since `act` began, which must say `word` soon."""
    before = broker.output.stat().st_size
    act()
    deadline = time.monotonic() + 5.0
    while word not in (told := broker.output.read_bytes()[before:].decode()):
        assert time.monotonic() < deadline, f"{word!r} is not in the log: {told}"
        time.sleep(0.005)
    return told


FRAMES = {
    "an unknown API": (framed(struct.pack(">hhih", 999, 0, 1, -1)), "API key 999"),
    "a negative API": (framed(struct.pack(">hhih", -7, 0, 1, -1)), "API key -7"),
    "an unknown version": (framed(struct.pack(">hhih", ApiKey.METADATA, 99, 1, -1)), "METADATA version 99"),
    "a negative version": (framed(struct.pack(">hhih", ApiKey.FETCH, -1, 1, -1)), "FETCH version -1"),
    "a negative frame": (struct.pack(">i", -5), "-5 bytes"),
    "an oversized frame": (struct.pack(">i", 2**31 - 1), "2147483647 bytes"),
    "an empty frame": (framed(b""), "too short"),
    "half a header": (framed(b"\0\3\0\1\0"), "too short"),
    "a cut body": (framed(struct.pack(">hhihi", ApiKey.METADATA, 1, 1, -1, 5)), "METADATA v1"),
    "an array that claims too much": (
        framed(struct.pack(">hhihi", ApiKey.METADATA, 1, 1, -1, 2**31 - 1)),
        "claims 2147483647 elements",
    ),
    "a client id that claims too much": (framed(struct.pack(">hhih", ApiKey.METADATA, 1, 1, 9999)), "client id"),
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "bytes"),
    "a TLS hello": (bytes.fromhex("16030100f8010000f40303") + bytes(200), "bytes"),
}


@pytest.mark.parametrize("what", FRAMES)
def test_a_frame_that_makes_no_sense_closes_its_connection_with_a_word(broker: Tidelog, what: str) -> None:
    data, word = FRAMES[what]

    def act() -> None:
        with Connection(broker.bootstrap, timeout_s=5.0) as connection:
            connection.send_bytes(data)
            assert connection.is_closed(), "the connection stays open"

    assert len(told_while(broker, word, act).splitlines()) == 1


BATCHES = {
    "a wrong CRC": (Batch([Sent()], crc=7).encode(), ErrorCode.CORRUPT_MESSAGE),
    "an old magic": (Batch([Sent()], magic=1).encode(), ErrorCode.INVALID_RECORD),
    "a magic of the future": (Batch([Sent()], magic=7).encode(), ErrorCode.CORRUPT_MESSAGE),
    "no records": (None, ErrorCode.INVALID_RECORD),
    "no bytes": (b"", ErrorCode.INVALID_RECORD),
    "a count that lies": (Batch([Sent()], count=2**31 - 1).encode(), ErrorCode.INVALID_RECORD),
    "a length that lies": (Batch([Sent()], length=2**31 - 1).encode(), ErrorCode.INVALID_RECORD),
    "an unknown codec": (Batch([Sent()], attributes=7).encode(), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "a control batch": (Batch([Sent()], attributes=32).encode(), ErrorCode.INVALID_RECORD),
    "too large": (Batch([Sent(b"x" * 11_000_000)]).encode(), ErrorCode.MESSAGE_TOO_LARGE),
    "a date far ahead": (Batch([Sent()], base_timestamp=2**62).encode(), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("what", BATCHES)
def test_a_bad_batch_gets_its_error_and_leaves_nothing_behind(connection: Connection, what: str) -> None:
    records, error = BATCHES[what]
    end = fetch(connection, TOPIC, 0).high_watermark
    answer = produce(connection, records)
    assert answer.error_code == error
    assert answer.error_message
    assert fetch(connection, TOPIC, 0).high_watermark == end


def test_topics_and_offsets_that_are_not_there(connection: Connection) -> None:
    assert produce(connection, Batch([Sent()]).encode(), "missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(connection, Batch([Sent()]).encode(), TOPIC, 77).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(connection, "missing", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(connection, TOPIC, 10**12).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(connection, TOPIC, -3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("name", ["", ".", "..", "../../etc/passwd", "a/b", "a\0b", "x" * 250, "white space", "ünï"])
def test_a_topic_name_is_no_path(broker: Tidelog, connection: Connection, name: str) -> None:
    before = sorted(entry.name for entry in broker.folder.iterdir())
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = connection.ask(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 5000})
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    assert connection.ask(ApiKey.METADATA, 9, asked).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert produce(connection, Batch([Sent()]).encode(), name).error_code != 0
    assert sorted(entry.name for entry in broker.folder.iterdir()) == before


def test_acks_0_with_an_error_closes_since_nothing_else_is_heard(broker: Tidelog) -> None:
    parts = [{"index": 0, "records": Batch([Sent()], crc=1).encode()}]
    fields = {"acks": 0, "timeout_ms": 5000, "topic_data": [{"name": TOPIC, "partition_data": parts}]}

    def act() -> None:
        with Connection(broker.bootstrap, timeout_s=5.0) as connection:
            connection.send(ApiKey.PRODUCE, 9, fields)
            assert connection.is_closed()

    assert "acks=0" in told_while(broker, f"{TOPIC}-0", act)


def test_every_request_cut_anywhere_closes_or_answers(broker: Tidelog) -> None:
    """No cut and no flipped byte makes the broker hang or fall over."""
    with Connection(broker.bootstrap, timeout_s=5.0) as connection:
        whole = connection.header(ApiKey.CREATE_TOPICS, 5, 1) + bytes.fromhex("02 04 616263 00000001 0001 01 01 00")
        whole += struct.pack(">ib", 1000, 1) + b"\0"
    for end in range(len(whole)):
        with Connection(broker.bootstrap, timeout_s=5.0) as connection:
            connection.send_bytes(framed(whole[:end]))
            answered_or_closed(connection)
    for place in range(8, len(whole)):
        with Connection(broker.bootstrap, timeout_s=5.0) as connection:
            connection.send_bytes(framed(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]))
            answered_or_closed(connection)


def answered_or_closed(connection: Connection) -> None:
    try:
        connection.read_frame()
    except ClosedError:
        return


def test_pipelined_requests_behind_a_bad_one_are_not_answered(broker: Tidelog) -> None:
    good = framed(struct.pack(">hhihi", ApiKey.METADATA, 1, 1, -1, 0))
    with Connection(broker.bootstrap, timeout_s=5.0) as connection:
        connection.send_bytes(good + framed(struct.pack(">hhih", 999, 0, 2, -1)) + good)
        assert struct.unpack_from(">i", connection.read_frame())[0] == 1
        assert connection.is_closed()


def test_too_new_api_versions_gets_an_answer_any_client_can_read(connection: Connection) -> None:
    connection.send_bytes(framed(struct.pack(">hhih", ApiKey.API_VERSIONS, 999, 5, -1)))
    answer = connection.read_frame()
    correlation_id, error, count = struct.unpack_from(">ihi", answer)
    assert (correlation_id, error) == (5, ErrorCode.UNSUPPORTED_VERSION)
    keys = dict(struct.unpack_from(">hh", answer, 10 + 6 * place) for place in range(count))
    assert ApiKey.API_VERSIONS in keys
    assert RANGES[ApiKey.API_VERSIONS].max == 4


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Tidelog]:
    """A broker with little patience and little room."""
    settings = {"max.connections": "200", "connections.max.idle.ms": "2000", "socket.request.max.bytes": "100000"}
    with Tidelog(tmp_path / "data", settings) as tidelog:
        yield tidelog


def test_a_request_above_the_bound_is_refused_before_it_is_sent(strict: Tidelog) -> None:
    def act() -> None:
        with Connection(strict.bootstrap, timeout_s=5.0) as connection:
            connection.send_bytes(struct.pack(">i", 100_001))
            assert connection.is_closed()

    told_while(strict, "socket.request.max.bytes", act)


def test_an_idle_connection_is_closed(strict: Tidelog) -> None:
    with Connection(strict.bootstrap, timeout_s=15.0) as idle, Connection(strict.bootstrap) as worker:
        idle.ask(ApiKey.METADATA, 9, {"topics": []})
        assert idle.is_closed()
        with pytest.raises(ClosedError):
            worker.ask(ApiKey.METADATA, 9, {"topics": []})


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_request_that_trickles_in_is_given_up_and_holds_up_nobody(strict: Tidelog) -> None:
    """A byte now and then, so never idle, and never a whole request: there is a deadline for that too."""
    trickle = Connection(strict.bootstrap, timeout_s=0.1)
    trickle.send_bytes(struct.pack(">i", 50_000))
    deadline = time.monotonic() + 120.0
    closed = False
    with Connection(strict.bootstrap) as worker:
        while not closed:
            assert time.monotonic() < deadline, "a client that never finishes its request stays for ever"
            worker.ask(ApiKey.METADATA, 9, {"topics": []})
            try:
                trickle.send_bytes(b"x")
                closed = trickle.socket.recv(1) == b""
            except TimeoutError:
                continue
            except (ClosedError, ConnectionResetError):
                closed = True
    trickle.close()


def test_thousands_of_connections_are_bounded(strict: Tidelog) -> None:
    """More connections than the broker takes: it stays at its bound, and serves again when they have gone."""
    opened: list[socket.socket] = []
    try:
        for _ in range(1500):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", strict.port))
            opened.append(client)
        held = len(list(Path(f"/proc/{strict.pid}/fd").iterdir()))
        assert held < 400, f"{held} open files with max.connections=200"
    finally:
        for client in opened:
            client.close()
    with Connection(strict.bootstrap) as connection:
        assert connection.ask(ApiKey.METADATA, 9, {"topics": []}).brokers


def test_a_client_that_asks_and_never_reads_is_held_back(broker: Tidelog) -> None:
    """Its answers pile up only to a bound: the broker stops reading from it, and others are served."""
    data = Batch([Sent(b"x" * 900_000)]).encode()
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, data).error_code == 0
        before = resident_bytes(broker.pid)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    fields = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [part]}],
        "forgotten_topics_data": [],
    }
    greedy = Connection(broker.bootstrap, timeout_s=SLOW_S)
    try:
        for _ in range(3000):
            greedy.send(ApiKey.FETCH, 11, fields)
    except TimeoutError:
        pass
    with Connection(broker.bootstrap) as other:
        assert other.ask(ApiKey.METADATA, 9, {"topics": []}).brokers
    grown = resident_bytes(broker.pid) - before
    greedy.close()
    assert grown < 100 << 20, f"{grown} bytes more for a client that doesn't read"


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))
