"""Asking a broker from a plain process: versions, leaders, offsets, fetches, and what happens when nobody answers."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.served import Tidelog
from tidelog.client import Admin
from tidelog.rpc import EARLIEST, LATEST, Cluster, Options, Unreachable, list_offsets
from tidelog.rpc.address import Address, addresses
from tidelog.rpc.connection import Connection
from tidelog.rpc.errors import Lost, Unsupported
from tidelog.rpc.fetch import OffsetOutOfRange, PartitionReader
from tidelog.rpc.offsets import Found
from tidelog.testing import Broker
from tidelog.wire.batch import iterate, records
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.keys import ApiKey

IMPATIENT = Options(patience_s=0.3, connect_timeout_s=0.3, request_timeout_s=0.3, unknown_topic_s=0.1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def filled(broker: Broker, topic: str, count: int, partitions: int = 1, **settings: object) -> str:
    Admin(broker.bootstrap).create_topic(topic, partitions, configs={"retention.ms": "-1"})  # records are from 1970
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for number in range(count):
        producer.produce(topic, b"value-%d" % number, partition=number % partitions, timestamp=1000 + number)
        producer.poll(0)
    producer.flush()
    return topic


def values(reader: PartitionReader) -> list[bytes | None]:
    found: list[bytes | None] = []
    for part in reader:
        found += [record.value for header in iterate(part.records) for record in records(part.records, header)]
    return found


def test_a_partition_is_read_from_an_offset_to_an_end(broker: Broker) -> None:
    topic = filled(broker, "read-range", 500)
    with Cluster(broker.bootstrap) as cluster:
        got = values(PartitionReader(cluster, topic, 0, 0, 500, fetch_bytes=2000))
        assert got == [b"value-%d" % number for number in range(500)]


def test_each_fetch_is_bounded_and_the_next_is_under_way(broker: Broker) -> None:
    topic = filled(broker, "read-bounded", 2000, **{"batch.num.messages": 10, "linger.ms": 0})
    with Cluster(broker.bootstrap) as cluster:
        parts = [
            (len(part.records), part.next_offset)
            for part in PartitionReader(cluster, topic, 0, 0, 2000, fetch_bytes=4096)
        ]
    assert max(size for size, _ in parts) <= 4096
    assert [offset for _, offset in parts] == sorted({offset for _, offset in parts})
    assert parts[-1][1] == 2000


def test_a_reader_that_is_left_early_does_not_spoil_its_connection(broker: Broker) -> None:
    topic = filled(broker, "read-left", 300, **{"batch.num.messages": 10, "linger.ms": 0})
    with Cluster(broker.bootstrap) as cluster:
        for _ in PartitionReader(cluster, topic, 0, 0, 300, fetch_bytes=500):
            break
        assert list_offsets(cluster, {(topic, 0): LATEST}) == {(topic, 0): Found(300, -1)}


def test_offsets_are_found_by_their_ends_and_by_time(broker: Broker) -> None:
    topic = filled(broker, "offsets", 100, partitions=4)
    with Cluster(broker.bootstrap) as cluster:
        places = [(topic, partition) for partition in range(4)]
        assert list_offsets(cluster, dict.fromkeys(places, EARLIEST)) == dict.fromkeys(places, Found(0, -1))
        assert list_offsets(cluster, dict.fromkeys(places, LATEST)) == dict.fromkeys(places, Found(25, -1))
        by_time = list_offsets(cluster, dict.fromkeys(places, 1050))
        assert [by_time[place].offset for place in places] == [13, 13, 12, 12]
        assert list_offsets(cluster, {places[0]: 999_999}) == {places[0]: Found(-1, -1)}


def test_topics_are_told_with_their_partitions_and_none_is_made_by_asking(broker: Broker) -> None:
    topic = filled(broker, "told", 1, partitions=3)
    with Cluster(broker.bootstrap, IMPATIENT) as cluster:
        assert sorted(cluster.topics([topic, "not-there"])) == [topic]
        assert sorted(cluster.topic(topic).partitions) == [0, 1, 2]
        with pytest.raises(KafkaError, match="there is no topic not-there"):
            cluster.topic("not-there")
        assert "not-there" not in cluster.topics()


def test_an_offset_that_is_not_there_is_said_at_once(broker: Broker) -> None:
    topic = filled(broker, "out-of-range", 5)
    with Cluster(broker.bootstrap) as cluster, pytest.raises(OffsetOutOfRange, match="does not hold offset 77"):
        values(PartitionReader(cluster, topic, 0, 77, 80))


def test_a_topic_that_is_not_there_is_not_waited_for_long(broker: Broker) -> None:
    with Cluster(broker.bootstrap, IMPATIENT) as cluster, pytest.raises(KafkaError) as raised:
        list_offsets(cluster, {("never-made", 0): LATEST})
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_reading_goes_on_after_the_broker_came_back(tmp_path: Path) -> None:
    with Tidelog(tmp_path / "data") as broker:
        Admin(broker.bootstrap).create_topic("back", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 10, "linger.ms": 0})
        for number in range(200):
            producer.produce("back", b"value-%d" % number)
        producer.flush()
        with Cluster(broker.bootstrap) as cluster:
            got: list[bytes | None] = []
            parts = iter(PartitionReader(cluster, "back", 0, 0, 200, fetch_bytes=1000))
            part = next(parts)
            while True:
                got += [record.value for header in iterate(part.records) for record in records(part.records, header)]
                if len(got) < 100 < len(got) + 10:
                    broker.kill()
                    broker.start()
                try:
                    part = next(parts)
                except StopIteration:
                    break
        assert got == [b"value-%d" % number for number in range(200)]


def test_nobody_there_is_said_with_the_address_and_the_last_trouble() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        bootstrap = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(
        Unreachable, match=rf"no broker at {bootstrap} could list the topics within 0.3 s; last: .*refus"
    ):
        Cluster(bootstrap, IMPATIENT).topics()


@pytest.fixture
def scripted() -> Iterator[Callable[[bytes], Address]]:
    """A server that answers whatever comes with the same bytes."""
    listener = socket.create_server(("127.0.0.1", 0))
    answer: list[bytes] = []

    def serve() -> None:
        try:
            while True:
                client, _ = listener.accept()
                with client:
                    client.recv(65536)
                    client.sendall(answer[0])
                    client.settimeout(1)
                    client.recv(1)
        except OSError:
            return

    def start(said: bytes) -> Address:
        answer.append(said)
        threading.Thread(target=serve, daemon=True).start()
        return Address(*listener.getsockname())

    yield start
    listener.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "claims 1213486160 bytes"),
        (b"\0\0\0\x03abc", "claims 3 bytes"),
        (b"\0\0\0\x08\0\0\0\x63abcd", "does not speak Kafka's protocol"),
        (b"\0\0\0\x08\0\0\0\x01\0\0\x7f\x7f", "does not speak Kafka's protocol"),
        (b"", "no answer in time|timed out"),
    ],
)
def test_what_is_no_broker_is_refused(scripted: Callable[[bytes], Address], said: bytes, why: str) -> None:
    with pytest.raises(Lost, match=why):
        Connection(scripted(said), IMPATIENT)


def test_a_version_that_only_one_side_knows_is_refused(broker: Broker) -> None:
    with Connection(addresses(broker.bootstrap)[0], Options()) as connection:
        assert connection.version(ApiKey.FETCH, 17) == 17
        del connection.versions[ApiKey.FETCH]
        with pytest.raises(Unsupported, match=r"FETCH: the broker at .* does not serve it"):
            connection.version(ApiKey.FETCH)


@pytest.mark.parametrize("text", ["", " , ", "host:0", "host:99999", ":9092", "host:abc", "::1", "::1:9092", "a b:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        addresses(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [("sea", "'sea' has no port: write sea:9092"), ("a:1,sea:", "write sea:9092"), ("[::1]", r"write \[::1\]:9092")],
)
def test_an_address_without_a_port_is_told_with_the_usual_one(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        addresses(text)


def test_addresses_are_read_in_every_common_form() -> None:
    assert addresses("a:1, PLAINTEXT://b:2,[::1]:3") == [Address("a", 1), Address("b", 2), Address("::1", 3)]
    assert str(Address("::1", 3)) == "[::1]:3"


def test_security_that_is_not_there_is_refused_instead_of_ignored() -> None:
    with pytest.raises(Unsupported, match="SASL is not supported yet; use PLAINTEXT, or SSL"):
        Options.from_kafka({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    with pytest.raises(Unsupported, match="one of PLAINTEXT, SSL"):
        Options.from_kafka({"security.protocol": "TLS"})
    with pytest.raises(Unsupported, match="only PEM files"):
        Options.from_kafka({"ssl.truststore.type": "JKS", "ssl.truststore.location": "a.jks"})
    with pytest.raises(ValueError, match=r"request.timeout.ms=soon"):
        Options.from_kafka({"request.timeout.ms": "soon"})


def test_options_take_kafkas_names() -> None:
    options = Options.from_kafka(
        {"security.protocol": "SSL", "ssl.ca.location": "ca.pem", "request.timeout.ms": "1500"}
    )
    assert (options.tls, options.ca_file, options.request_timeout_s) == (True, "ca.pem", 1.5)
    assert Options().tls_context() is None
