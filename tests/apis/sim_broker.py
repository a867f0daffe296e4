"""A broker on virtual time whose requests are handed to it as frames: what it answers, and when.

Syncs can be held back (`hold_syncs`), so that what was written and what is durable are two things; time passes only
when a test lets it. `fast=False` takes every request the general way, through the compiled codec: the oracle of the
others.
"""

import struct
from collections.abc import Callable, Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from tests.batches import TRANSACTIONAL, Batch, Producer, Sent
from tests.raw import build, request_class, response_class
from tidelog.apis.fetch.path import FetchPath
from tidelog.apis.produce import ProducePath
from tidelog.broker import Broker
from tidelog.config import BrokerConfig
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.env.slices import LIGHT
from tidelog.replica.partition import Partition
from tidelog.server.answers import Slot
from tidelog.server.dispatch import Dispatch
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import EPOCH_MS, SimLoop, SimTimer, Timeline
from tidelog.sim.world.network import SimNetwork
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import build as build_batch
from tidelog.wire.codec import decoder, encoder
from tidelog.wire.errors import MalformedError
from tidelog.wire.header import read_response_header, request_header
from tidelog.wire.keys import ApiKey
from tidelog.wire.markers import marker_record

T = TypeVar("T")

SETTINGS = {
    "log.dirs": "/data",
    "listeners": "PLAINTEXT://localhost:9092",
    "node.id": "1",
    "tidelog.journal.bytes": "262144",  # a simulated disk is in memory
}
NOW_MS = EPOCH_MS
WAIT_S = 30.0
LIVES = count(1)


class HeldLoop(SimLoop):
    """A loop whose blocking work waits while `held_work` is a list; it is done at once otherwise. What isn't long needs
    no second slice. `timers_set` counts timers."""

    held_work: list[Callable[[], None]] | None = None
    timers_set = 0

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> SimTimer:
        self.timers_set += 1
        return super().call_later(delay_s, callback, *args)

    def steps_a_slice(self) -> int:
        return 200

    def run_blocking(self, work: Callable[[], T]) -> Promise[T]:
        promise: Promise[T] = Promise()

        def begin() -> None:
            try:
                settle: Callable[[Any], None] = promise.resolve
                outcome: Any = work()
            except Exception as error:
                settle, outcome = promise.fail, error
            settle(outcome)

        if self.held_work is None:
            self.call_soon(begin)
        else:
            self.held_work.append(begin)
        return promise


class Asked:
    """A request that was handed over. `frame` is the answer without its length; `closed` says why there is none."""

    def __init__(self, key: int, version: int) -> None:
        self.key = key
        self.version = version
        self.frame: bytes | None = None
        self.done = False
        self.closed: str | None = None
        self.late: Any = None
        self.slot: Slot | None = None

    def settle(self, answer: Any) -> None:
        self.done = True
        if answer is None:
            return
        parts = answer if isinstance(answer, list) else [answer]
        whole = b"".join(bytes(part if isinstance(part, (bytes, memoryview)) else part.view()) for part in parts)
        assert struct.unpack_from(">i", whole)[0] == len(whole) - 4, "the frame's length is wrong"
        self.frame = whole[4:]

    def fail(self, reason: str) -> None:
        self.done, self.closed = True, reason

    @property
    def response(self) -> Any:
        assert self.done, "not answered yet"
        assert self.frame is not None, f"no answer: {self.closed}"
        _, pos = read_response_header(self.frame, 0, self.key, self.version)
        response, end = decoder(response_class(ApiKey(self.key)), self.version)(self.frame, pos)
        assert end == len(self.frame)
        return response

    @property
    def outcome(self) -> tuple[bool, bytes | None, bool]:
        return self.done, self.frame, self.closed is not None


class SimBroker:
    def __init__(
        self, settings: Mapping[str, str] | None = None, *, fast: bool = True, disk: SimDisk | None = None
    ) -> None:
        """`disk`: of a broker that was stopped or killed."""
        random = SimRandom(0 if disk is None else next(LIVES))
        self.timeline = Timeline()
        self.disk = disk or SimDisk(random.fork("disk"))
        self.disk.now_ms = self.timeline.now_ms
        self.disk.make_folders("/data")
        self.network = SimNetwork(self.timeline, random.fork("network"))
        self.loop = HeldLoop(self.timeline, random.fork("loop"))
        environment = Environment(
            self.timeline, self.loop, self.disk, self.network.view("broker"), random.fork("broker")
        )
        self.broker = Broker(environment, BrokerConfig.parse({**SETTINGS, **(settings or {})}))
        self.wait(self.broker.start())
        self.services = self.broker.services
        self.dispatch = Dispatch(self.services)
        if not fast:
            self.take_the_general_way()
        self._connection: Any = SimpleNamespace(
            peer="127.0.0.1",
            listener="PLAINTEXT",
            id=1,
            time_quota=SimpleNamespace(spent=lambda _: None, weight=LIGHT),
            keep_frame=lambda: None,
        )
        self._correlation_id = 0

    def take_the_general_way(self) -> None:
        """From now on the fast paths leave every request to the compiled codec."""

        def leave(*_: object) -> Any:
            return NotImplemented

        with patch.object(ProducePath, "handle_frame", leave), patch.object(FetchPath, "handle_frame", leave):
            self.dispatch = Dispatch(self.services)

    # -- time and syncs

    def wait(self, promise: Promise[T]) -> T:
        self.timeline.run_until(lambda: promise.done, self.timeline.now + WAIT_S)
        return promise.result()

    def pass_time(self, seconds: float) -> None:
        self.timeline.run_until(lambda: False, self.timeline.now + seconds)

    def kill(self) -> SimDisk:
        """kill -9: the disk that the next life begins with."""
        self.loop.kill()
        self.disk.release_locks()
        return self.disk

    def settle(self) -> None:
        """Let everything happen that happens at this moment."""
        self.pass_time(0.0)

    def hold_syncs(self) -> None:
        self.loop.held_work = []

    def let_first_sync(self) -> None:
        """The one that was asked for first is done; whatever is asked for then is held, too."""
        assert self.loop.held_work, "no sync is held"
        self.loop.held_work.pop(0)()
        self.settle()

    def let_sync(self) -> None:
        held, self.loop.held_work = self.loop.held_work or [], None
        for begin in held:
            begin()
        self.settle()

    # -- requests

    def send(self, key: int, version: int, fields: Mapping[str, Any], client_id: str | None = "tester") -> Asked:
        """Hand over a request; its answer may come later."""
        message = request_class(ApiKey(key))
        self._correlation_id += 1
        body = encoder(message, version)(build(message, fields))
        return self.send_frame(request_header(key, version, self._correlation_id, client_id) + body)

    def send_frame(self, frame: bytes) -> Asked:
        """Hand over any bytes, in a buffer that more follows in, as the shared one; it is overwritten afterwards."""
        key, version = struct.unpack_from(">hh", frame) if len(frame) >= 4 else (-1, -1)
        asked = Asked(key, version)
        buffer = memoryview(bytearray(b"\xa5" * 7 + frame + b"\x5a" * 64))
        try:
            answer = self.dispatch.handle(self._connection, buffer, 7, 7 + len(frame))
        except MalformedError as error:
            asked.done, asked.closed = True, str(error)
        else:
            self._take(asked, answer)
        buffer[:] = b"\xee" * len(buffer)
        return asked

    def answered(self, key: int, version: int, answer: Any) -> Asked:
        """A request that the dispatch gave this answer to, which may come later."""
        asked = Asked(key, version)
        self._take(asked, answer)
        return asked

    def _take(self, asked: Asked, answer: Any) -> None:
        if answer is None or isinstance(answer, (bytes, list)):
            asked.settle(answer)
        else:
            self._await(asked, answer)

    def _await(self, asked: Asked, late: Any) -> None:
        asked.late = late
        asked.slot = slot = Slot(
            lambda: asked.settle(slot.answer), lambda: None, asked.fail, late, runs_ahead=late.runs_ahead
        )
        late.begin(slot)

    def ask(self, key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """The response, waited for."""
        return self.answer(self.send(key, version, fields))

    def answer(self, asked: Asked) -> Any:
        """The response to what was handed over, waited for."""
        self.timeline.run_until(lambda: asked.done, self.timeline.now + WAIT_S)
        return asked.response

    # -- the usual ones

    def make_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> bytes:
        """Its id."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        answer = self.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 10_000}).topics[0]
        assert answer.error_code == 0, answer
        return answer.topic_id

    def delete_topic(self, name: str) -> None:
        fields = {"topics": [{"name": name}], "timeout_ms": 10_000}
        assert self.ask(ApiKey.DELETE_TOPICS, 6, fields).responses[0].error_code == 0

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> None:
        asked = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
        answer = self.ask(ApiKey.DELETE_RECORDS, 2, {"topics": [asked], "timeout_ms": 10_000})
        assert answer.topics[0].partitions[0].error_code == 0

    def open(self, *places: tuple[str, int]) -> None:
        """Open logs that are on disk, as requests that name them do."""
        opened = self.services.replicas.open(places)
        if opened is not None:
            self.wait(opened)

    def partition(self, topic: str, index: int = 0) -> Partition:
        self.open((topic, index))
        return self.services.replicas.get(topic, index)

    def append(self, topic: str, *values: bytes, partition: int = 0, at_ms: int = NOW_MS) -> int:
        """One batch with acks=all; its base offset."""
        fields = produce_fields(topic, batch(*values, at_ms=at_ms), partition=partition)
        answer = self.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0]
        assert answer.error_code == 0, answer
        return answer.base_offset

    def append_own(self, topic: str, data: bytes, partition: int = 0) -> int:
        """Append what only the broker itself writes: parts of transactions and their markers. The base offset."""
        found = self.partition(topic, partition)
        view = memoryview(bytearray(data))
        base, _, _ = found.log.append(view, 0, len(view), found.leader_epoch, NOW_MS, internal=True)
        self.services.store.commit.request(found.log)
        found.advance()
        self.settle()
        return base

    def check(self) -> None:
        self.services.replicas.check_invariants()


def batch(*values: bytes, at_ms: int = NOW_MS, **more: Any) -> bytes:
    return Batch([Sent(value) for value in values or (b"value",)], base_timestamp=at_ms, **more).encode()


def in_transaction(*values: bytes, producer_id: int, sequence: int = 0) -> bytes:
    """A batch that is part of a transaction."""
    return batch(*values, producer=Producer(producer_id, 0, sequence), attributes=TRANSACTIONAL)


def marker(producer_id: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction."""
    record = marker_record(0, NOW_MS, commit=commit)
    return bytes(build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True))


def produce_fields(
    topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, timeout_ms: int = 1000
) -> dict[str, Any]:
    """A produce request of one partition."""
    data = [{"index": partition, "records": records}]
    return {"acks": acks, "timeout_ms": timeout_ms, "topic_data": [{"name": topic, "partition_data": data}]}
