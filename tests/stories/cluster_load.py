"""Admins who make and delete topics while controllers die, and the account of what they were told."""

import gc
import itertools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic
from kafka.errors import KafkaError as KafkaPythonError
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.nodes import Nodes, metadata_of, wait_for
from tests.raw import ClosedError, Connection
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

ASKED_S = 10.0


class NotToldError(Exception):
    """Nobody knows whether it was done."""


class Confluent:
    """Topics by confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self._admin: Any = AdminClient(
            {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        )

    def create(self, name: str) -> None:
        topic = NewTopic(name, num_partitions=2, replication_factor=1)
        self._settle(self._admin.create_topics([topic], request_timeout=ASKED_S), "TOPIC_ALREADY_EXISTS")

    def delete(self, name: str) -> None:
        self._settle(self._admin.delete_topics([name], request_timeout=ASKED_S), "UNKNOWN_TOPIC_OR_PART")

    def _settle(self, futures: dict[str, Any], done_before: str) -> None:
        for future in futures.values():
            try:
                future.result(2 * ASKED_S)
            except KafkaException as error:
                if error.args[0].name() != done_before:
                    raise NotToldError from error

    def close(self) -> None:
        pass


class KafkaPython:
    """Topics by kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # its records hold on to sockets that it never closes
        self._bootstrap = bootstrap
        self._admin: Any = None

    def create(self, name: str) -> None:
        topic = KafkaPythonTopic(name, num_partitions=2, replication_factor=1)
        self._ask(lambda admin: admin.create_topics([topic]), TopicAlreadyExistsError)

    def delete(self, name: str) -> None:
        self._ask(lambda admin: admin.delete_topics([name]), UnknownTopicOrPartitionError)

    def _ask(self, ask: Callable[[Any], object], done_before: type[Exception]) -> None:
        try:
            if self._admin is None:
                self._admin = KafkaAdminClient(
                    bootstrap_servers=self._bootstrap.split(","), request_timeout_ms=int(ASKED_S * 1000)
                )
            ask(self._admin)
        except done_before:
            return
        except (KafkaPythonError, OSError) as error:
            self.close()
            raise NotToldError from error

    def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            with suppress(Exception):
                admin.close()


class TopicMaker:
    """Makes topics in a thread and deletes every other one of them, until `finish`."""

    def __init__(self, name: str, client: "Confluent | KafkaPython") -> None:
        self.there: set[str] = set()
        """Acknowledged as made, and not asked to go."""
        self.gone: set[str] = set()
        """Acknowledged as deleted."""
        self.unsure: set[str] = set()
        """Asked for, and never answered with yes or no."""
        self.failed: BaseException | None = None
        self._name = name
        self._client = client
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "TopicMaker":
        self._thread.start()
        return self

    @property
    def acknowledged(self) -> int:
        return len(self.there) + 2 * len(self.gone)

    def finish(self) -> None:
        self._over.set()
        self._thread.join(120.0)
        assert not self._thread.is_alive(), f"{self._name} waits for an answer still"
        self._client.close()
        gc.collect()  # kafka-python leaves sockets open that it couldn't connect: where the test passes that over
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        try:
            for number in itertools.count():
                if self._over.wait(0.01):
                    return
                self._one(f"{self._name}-{number}", delete=number % 2 == 1)
        except BaseException as error:
            self.failed = error

    def _one(self, topic: str, *, delete: bool) -> None:
        try:
            self._client.create(topic)
            if delete:
                self._client.delete(topic)
        except NotToldError:
            self.unsure.add(topic)
            return
        (self.gone if delete else self.there).add(topic)


def account_for(nodes: Nodes, makers: list[TopicMaker], timeout_s: float = 30.0) -> None:
    """Every broker comes to tell of all topics that were acknowledged, of none that was deleted, and of the same."""
    there = set[str]().union(*(maker.there for maker in makers))
    gone = set[str]().union(*(maker.gone for maker in makers))
    brokers = [node for node in nodes if "broker" in node.roles]
    told: dict[int, set[str]] = {}

    def agree() -> bool:
        for node in brokers:
            told[node.id] = {topic.name for topic in metadata_of(node.bootstrap).topics}
        first = next(iter(told.values()))
        return there <= first and not gone & first and all(one == first for one in told.values())

    try:
        wait_for(agree, "all brokers to tell the same", timeout_s)
    except AssertionError:
        for id, topics in told.items():
            lost, back = there - topics, gone & topics
            assert not lost, f"broker {id} lost {len(lost)} acknowledged topics, such as {sorted(lost)[:5]}"
            assert not back, f"broker {id} has {len(back)} deleted topics again, such as {sorted(back)[:5]}"
        raise


def until_decided(bootstraps: list[str], topic: str, timeout_s: float = 30.0) -> None:
    """Until somebody acknowledges that this topic was made."""
    deadline = time.monotonic() + timeout_s
    for bootstrap in itertools.cycle(bootstraps):
        with suppress(OSError, ClosedError):
            if create_once(bootstrap, topic, timeout_s=1.0) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
        assert time.monotonic() < deadline, f"no controller decided within {timeout_s:g} s"
        time.sleep(0.01)


def create_once(bootstrap: str, topic: str, *, timeout_s: float) -> ErrorCode:
    """Ask this node for the topic, once."""
    with Connection(bootstrap, timeout_s=timeout_s) as connection:
        answer = connection.ask(ApiKey.CREATE_TOPICS, 7, creation(topic, int(timeout_s * 1000)))
    return ErrorCode(answer.topics[0].error_code)


def creation(topic: str, timeout_ms: int) -> dict[str, Any]:
    asked = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    return {"topics": [asked], "timeout_ms": timeout_ms}
