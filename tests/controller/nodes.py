"""A controller on a simulated disk and on virtual time: raft, store and log are the real ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import resolve_topic
from tidelog.controller.activation import default_bootstrap
from tidelog.controller.controller import Controller
from tidelog.controller.leaders import Defaults
from tidelog.controller.topics import create_topics
from tidelog.env import Environment, Network
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps
from tidelog.log.store import Store
from tidelog.metadata.follow import Follower
from tidelog.metadata.image import ClusterImage
from tidelog.raft import folder as folders
from tidelog.raft.driver import RaftDriver
from tidelog.raft.settings import RaftSettings
from tidelog.raft.store_log import METADATA_CONFIG, StoreLog
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.records.metadata import Record, decode_record, encode_record

T = TypeVar("T")

DATA = "/data"
METADATA = f"{DATA}/{folders.METADATA_FOLDER}"


class World:
    """Time and a disk that outlive the processes on them."""

    def __init__(self, seed: int = 1) -> None:
        self.random = SimRandom(seed)
        self.timeline = Timeline()
        self.disk = SimDisk(self.random.fork("disk"))

    def start(self, settings: RaftSettings | None = None, config: Mapping[str, str] | None = None) -> "Node":
        """A node that leads; raises what its start failed with."""
        node = Node(self, settings or RaftSettings(), config or {})
        self.settle(node.ready)
        node.ready.result()
        return node

    def settle(self, promise: Promise[Any]) -> None:
        assert self.timeline.run_until(lambda: promise.done, self.timeline.now + 60), "the promise is never settled"

    def run(self, seconds: float) -> None:
        self.timeline.run_until(lambda: False, self.timeline.now + seconds)


class Node:
    """One life of the node."""

    def __init__(self, world: World, settings: RaftSettings, config: Mapping[str, str]) -> None:
        self.world = world
        self.loop = SimLoop(world.timeline, world.random.fork(f"loop at {world.timeline.now}"))
        self.env = Environment(world.timeline, self.loop, world.disk, cast(Network, None), world.random)
        self.config = BrokerConfig.parse({"log.dirs": DATA, **config})
        endpoint = Endpoint("CONTROLLER", "localhost", 9093)
        identities, new = folders.open_folders(self.env, [DATA], 1, None)
        if new:
            bootstrap = [encode_record(record, 0) for record in default_bootstrap()]
            folders.format_metadata(self.env, DATA, bootstrap, folders.alone(identities[0], endpoint))
            folders.format_folder(self.env, DATA, identities[0])
        self.identity = identities[0]
        self.store = Store(self.env, [DATA], self.config)
        self.store.start()
        log = StoreLog(self.store, world.timeline, resolve_topic(METADATA_CONFIG, self.config))
        local = Voter(ReplicaKey(1, self.identity.directory_id), (endpoint,))
        self.raft = RaftDriver(self.env, METADATA, local, log, settings)
        self.follower = Follower()
        records = [decode_record(value) for value in folders.read_bootstrap(self.env, DATA)]
        self.controller = Controller(self.env, self.raft, self.follower, records, Defaults())
        self.ready = self.controller.start()

    @property
    def image(self) -> ClusterImage:
        return self.follower.image

    def submit(self, decide: Callable[[ClusterImage, int], tuple[Sequence[Record], T]]) -> T:
        return self._settle(self.controller.submit(decide))

    def submit_steps(self, decide: Callable[[ClusterImage, int], Steps[tuple[Sequence[Record], T]]]) -> T:
        return self._settle(self.controller.submit_steps(decide))

    def _settle(self, promise: Promise[T]) -> T:
        self.world.settle(promise)
        self.controller.machine.check_invariants()
        self.raft.quorum.check_invariants()
        return promise.result()

    def write(self, *records: Record) -> None:
        self.submit(lambda image, now_ms: (records, None))

    def create(self, name: str, partitions: int = 1) -> CreateTopicsResponse:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
        )
        random = self.world.random
        return self.submit_steps(
            lambda image, now_ms: create_topics(
                image, request, random.uuid, Defaults(), lambda topic, configs: configs, lambda configs: []
            )
        )

    def stop(self) -> None:
        self.raft.stop()
        self.world.settle(self.store.stop())
        self.kill()

    def kill(self) -> None:
        self.loop.kill()
        self.world.disk.release_locks()

    def power_loss(self) -> None:
        self.kill()
        self.world.disk.crash()
