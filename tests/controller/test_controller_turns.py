"""What brokers and tools ask of a controller holds its loop no longer than other requests, however many partitions it
is about."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.raw import Connection, build, request_class
from tests.turns import WatchedBroker
from tidelog.apis.envelope import wrap
from tidelog.metadata.versions import SUPPORTED
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode
from tidelog.wire.header import request_header
from tidelog.wire.keys import ApiKey

PARTITIONS = 9999
OTHER = 2
"""A broker that the test speaks for."""
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": "60000",
}
TIMEOUT_MS = 60_000


class Other:
    """The other broker."""

    def __init__(self, broker: WatchedBroker) -> None:
        self.cluster_id = broker.broker.services.cluster_id
        address = broker.broker.controller_addresses["CONTROLLER"]
        self.connection = Connection(f"127.0.0.1:{address.port}", timeout_s=60.0)
        self.epoch = -1

    def register(self, incarnation: int) -> None:
        fields: dict[str, Any] = {
            "broker_id": OTHER,
            "cluster_id": self.cluster_id,
            "incarnation_id": bytes(15) + bytes([incarnation]),
            "listeners": [{"name": "PLAINTEXT", "host": "localhost", "port": 1, "security_protocol": 0}],
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, (low, high) in SUPPORTED.items()
            ],
            "rack": None,
            "log_dirs": [b"the other's disk"],
            "previous_broker_epoch": self.epoch,
        }
        answer = self.connection.ask(ApiKey.BROKER_REGISTRATION, 4, fields)
        assert not answer.error_code
        self.epoch = answer.broker_epoch

    def stop(self) -> None:
        while not self.beat(want_shut_down=True).should_shut_down:
            pass

    def beat(self, **wants: bool) -> Any:
        fields = {"broker_id": OTHER, "broker_epoch": self.epoch, "current_metadata_offset": 2**40, **wants}
        return self.connection.ask(ApiKey.BROKER_HEARTBEAT, 2, {**fields, "offline_log_dirs": []})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    with WatchedBroker(tmp_path_factory.mktemp("controller-turns"), SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def other(broker: WatchedBroker) -> Iterator[Other]:
    """It has a replica of each of many partitions, and leads half of them."""
    other = Other(broker)
    for incarnation in (1, 2):  # all is imported, and compiled, by the second one
        other.register(incarnation)
        assert not other.beat().is_fenced
        other.stop()
    other.register(3)
    assert not other.beat().is_fenced
    with Connection(broker.bootstrap, timeout_s=60.0) as connection:
        connection.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout_ms": TIMEOUT_MS, "topics": None})
        topic = {"name": "wide", "num_partitions": PARTITIONS, "replication_factor": 2}
        (made,) = connection.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": TIMEOUT_MS}).topics
        assert not made.error_code
    yield other
    other.connection.close()


def test_partitions_that_move_are_listed(broker: WatchedBroker, other: Other) -> None:
    fields = {"timeout_ms": TIMEOUT_MS, "topics": None}
    with Connection(broker.bootstrap, timeout_s=60.0) as connection:
        answer = broker.unheld(lambda: connection.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, fields))
    assert (answer.error_code, answer.topics) == (0, [])


def test_a_change_of_thousands_of_topics_in_an_envelope(broker: WatchedBroker, other: Other) -> None:
    topics = [{"name": f"many{number}", "num_partitions": 1, "replication_factor": 1} for number in range(9000)]
    fields = {"topics": topics, "timeout_ms": TIMEOUT_MS, "validate_only": True}
    body = encoder(request_class(ApiKey.CREATE_TOPICS), 7)(build(request_class(ApiKey.CREATE_TOPICS), fields))
    envelope = wrap(request_header(ApiKey.CREATE_TOPICS, 7, 1, "c") + body, "127.0.0.1")
    sent = {name: getattr(envelope, name) for name in ("request_data", "request_principal", "client_host_address")}
    answer = broker.unheld(lambda: other.connection.ask(ApiKey.ENVELOPE, 0, sent))
    assert answer.error_code == ErrorCode.NONE
    assert len(answer.response_data) > 9000


def test_a_broker_with_thousands_of_partitions_comes_and_goes(broker: WatchedBroker, other: Other) -> None:
    incarnations = iter(range(10, 100))

    def come_back() -> None:
        other.stop()
        other.register(next(incarnations))
        assert not other.beat().is_fenced

    broker.unheld(come_back)
