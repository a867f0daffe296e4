"""A store on a simulated or a real disk, driven by hand: what the stories of the log play on."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from tests.batches import ANYONE, Batch, Producer, Sent

from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import TopicConfig, resolve_topic
from tidelog.env import Environment
from tidelog.env.real_disk import RealDisk
from tidelog.log.log import Log
from tidelog.log.record_check import Lengthy, answer
from tidelog.log.slice import Slice
from tidelog.log.store import Store
from tidelog.log.validate import Unlooked
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.inode import FileNode
from tidelog.sim.world.loop import EPOCH_MS, SimLoop, Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import iterate, records

TOPIC_ID = bytes(range(16))
EPOCH = 7
NOW_MS = EPOCH_MS
ROOT = "/data"


class CountingDisk(SimDisk):
    """Counts what it is asked to make durable."""

    syncs = 0

    def sync_node(self, node: FileNode, path: str) -> None:
        self.syncs += 1
        super().sync_node(node, path)

    def sync_folder(self, path: str) -> None:
        self.syncs += 1
        super().sync_folder(path)

    def sync_all(self, path: str) -> None:
        before = self.syncs
        super().sync_all(path)
        self.syncs = before + 1


class LogHarness:
    """One data folder and the store on it. `restart` stops it first, `kill` and `power_loss` don't."""

    def __init__(self, disk: SimDisk | RealDisk, root: str = ROOT, *, seed: int = 1, **settings: str) -> None:
        self.random = SimRandom(seed)
        self.timeline = Timeline()
        self.disk = disk
        if isinstance(disk, SimDisk):
            disk.now_ms = self.timeline.now_ms
        self.root = root
        defaults = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "log.initial.task.delay.ms": "1000000000000",
            "tidelog.journal.bytes": "0",  # its stories ask for one
        }
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.config = BrokerConfig.parse({**defaults, **given})
        self.loop: SimLoop
        self.store: Store
        self.start()

    def start(self) -> None:
        self.loop = SimLoop(self.timeline, self.random)
        env = Environment(
            clock=self.timeline,
            loop=self.loop,
            disk=self.disk,
            network=cast(Any, None),  # a log talks to no one
            random=self.random,
        )
        self.store = Store(env, [self.root], self.config)
        self.store.start()

    def run(self, until: Callable[[], bool], seconds: float = 60.0) -> None:
        assert self.timeline.run_until(until, self.timeline.now + seconds), "it never came"

    def settle(self, seconds: float = 5.0) -> None:
        """Let whatever is under way come to its end."""
        self.timeline.run_until(lambda: False, self.timeline.now + seconds)

    def stop(self) -> None:
        stopped = self.store.stop(broker_epoch=5)
        self.run(lambda: stopped.done)
        stopped.result()
        self.loop.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """kill -9: the page cache stays."""
        self.loop.kill()
        self.start()

    def power_loss(self) -> None:
        assert isinstance(self.disk, SimDisk)
        self.loop.kill()
        self.disk.crash()
        self.start()

    def log(self, topic: str = "tide", partition: int = 0, topic_id: bytes = TOPIC_ID, **settings: str) -> Log:
        return self.store.log(topic, partition, topic_id, self.topic(settings))

    def topic(self, settings: Mapping[str, str]) -> TopicConfig:
        return resolve_topic({name.replace("_", "."): value for name, value in settings.items()}, self.config)

    def commit(self, log: Log) -> None:
        """Make what was written durable."""
        end = log.log_end
        self.store.commit.request(log)
        self.run(lambda: log.durable_end >= end or log.offline is not None)

    def flush(self, log: Log) -> None:
        """Move the recovery point to the end."""
        end = log.log_end
        self.store.flush_soon(log)
        self.run(lambda: log.recovery_point >= end and self.store.upkeep.idle)
        self.settle(1.0)

    def retain(self, log: Log, now_ms: int) -> int:
        """Have retention look at the log, and wait until it is done; how many segments went."""
        before = log.segments[:]
        log.apply_retention(now_ms)
        self.settle(1.0)
        kept = {segment.base for segment in log.segments}
        return sum(1 for segment in before if segment.base not in kept)

    def folders(self) -> list[str]:
        """The names of the folders in the data folder."""
        return [name for name in self.disk.list_folder(self.root) if self.disk.is_folder(f"{self.root}/{name}")]

    def now_ms(self) -> int:
        return self.timeline.now_ms()


def batch(
    *values: bytes, at: int = NOW_MS, producer: Producer = ANYONE, codec: int = 0, key: bytes | None = None
) -> Batch:
    return Batch([Sent(value=value, key=key) for value in values], producer=producer, codec=codec, base_timestamp=at)


def append(log: Log, *values: bytes, now_ms: int = NOW_MS, producer: Producer = ANYONE, epoch: int = EPOCH) -> int:
    """Append one batch, dated now; its base offset."""
    return send(log, batch(*values, at=now_ms, producer=producer), now_ms=now_ms, epoch=epoch)[0]


def send(log: Log, made: Batch | bytes, now_ms: int = NOW_MS, epoch: int = EPOCH) -> tuple[int, int, int]:
    """Append as Produce does: one that takes long to look into is looked into before."""
    view = memoryview(bytearray(made if isinstance(made, bytes) else made.encode()))
    try:
        return log.append(view, 0, len(view), epoch, now_ms)
    except Lengthy:
        unlooked = log.admit(view, now_ms)
        assert isinstance(unlooked, Unlooked)
        buffer, start, end, _ = unlooked.settle(answer(unlooked.question))
        return log.append(buffer, start, end, epoch, now_ms, admitted=True)


def values(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """(offset, value) of everything from `offset` on."""
    found: list[tuple[int, bytes | None]] = []
    at = log.log_start if offset is None else offset
    while (piece := log.read(at, max_bytes, log.log_end)) is not None:
        for header in iterate(piece.view()):
            found += [(record.offset, record.value) for record in records(piece.view(), header) if record.offset >= at]
            at = header.next_offset
    return found


def size_of_first(piece: Slice) -> int:
    return next(iter(iterate(piece.view()))).size
