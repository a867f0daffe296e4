"""One machine of a simulated cluster, with its disks, its clock and its address, and the node that runs on it."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from tidelog.broker import Broker
from tidelog.broker.lifecycle import NotRegisteredError
from tidelog.config import BrokerConfig
from tidelog.controller.activation import default_bootstrap
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.log.checkpoints import PARTITION_METADATA
from tidelog.log.names import STRAY_FOLDER
from tidelog.raft.folder import FolderError, FolderIdentity, format_folder, format_metadata, read_identity
from tidelog.raft.format import AS_SETTINGS_SAY, Begins, format_node
from tidelog.sim.cluster.shape import CLUSTER_ID, METADATA, NodeShape, Shape
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.clock import MachineClock
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.mounts import MountedDisk
from tidelog.sim.world.network import SimNetwork
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.metadata import encode_record
from tidelog.wire.uuids import uuid_text

LOOK_S = 0.005
NOT_FORMATTED = 0.5
"""How often a disk that comes back empty is left as it is: the node learns its cluster from the controllers."""
EVENTS_KEPT = 12
"""The last things that happened to a node, which a failure tells."""


class Surroundings(Protocol):
    """The part of the world that a node lives in."""

    timeline: Timeline
    network: SimNetwork
    replaced: "list[Machine]"
    """Old machines whose ids other ones have now."""

    def note(self, text: str, node_id: int | None = None) -> None: ...

    def struck(self, kind: str) -> None: ...

    def began(self, process: "NodeProcess") -> None:
        """A node's parts are put together; it can be looked at from now on."""
        ...

    def ended(self, process: "NodeProcess") -> None:
        """It is about to be gone, however that came."""
        ...


class NodeProcess:
    """One life of a node, from its start to its end. `ready` when it serves, `ended` when it is gone."""

    def __init__(self, machine: "Machine", world: Surroundings, life: int, random: SimRandom) -> None:
        self.machine = machine
        self.name = f"{machine.name}.{life}"
        self.ready = False
        self.ended = False
        self._world = world
        self.loop = SimLoop(world.timeline, random.fork("loop"), machine.clock.rate)
        self.loop.lag = machine.disk.lag
        environment = Environment(
            machine.clock,
            self.loop,
            machine.disk,
            world.network.view(self.name, machine.address),
            random.fork("node"),
        )
        self.broker = Broker(environment, machine.config)
        self.loop.call_soon(self._start)

    def _start(self) -> None:
        try:
            started = self.broker.start()
        except (OSError, FolderError, KafkaError) as error:
            self._failed(error)
            return
        self._tell_of_parts()
        started.on_done(self._started)

    def _tell_of_parts(self) -> None:
        """There are none yet where the node has to learn first which cluster it belongs to."""
        if hasattr(self.broker, "services"):
            self._world.began(self)
        elif not self.ended:
            self.loop.call_later(LOOK_S, self._tell_of_parts)

    def _started(self, started: Promise[None]) -> None:
        if started.error is not None:
            self._failed(started.error)
            return
        self.broker.ended.on_done(self._gave_up)
        self.ready = True
        self._world.note("serves", self.machine.id)

    def _failed(self, error: BaseException) -> None:
        """A start that the disk made impossible, or that took too long; anything else is a bug."""
        if not _is_of_disk(error) and not isinstance(error, NotRegisteredError):
            if isinstance(error, FolderError | KafkaError):
                raise Violation(f"{self.name} doesn't start: {error}") from error
            raise error
        self._world.note(f"doesn't start: {error}", self.machine.id)
        self.kill()

    def _gave_up(self, ended: Promise[None]) -> None:
        """Its metadata log failed, or another machine has its id: it ends by itself."""
        if ended.error is None or self.ended:
            return
        outdated = isinstance(ended.error, NotRegisteredError) and self.machine in self._world.replaced
        if not outdated and not _is_of_disk(ended.error):
            raise ended.error
        self._world.note(f"gives up: {ended.error}", self.machine.id)
        self.kill()

    def stop(self, stopped: Callable[[], None]) -> None:
        """SIGTERM. `stopped` is called when it is gone."""

        def gone(promise: Promise[None]) -> None:
            if self.ended:
                return
            if promise.error is not None:
                self._world.note(f"doesn't stop cleanly: {promise.error}", self.machine.id)
            self.kill()
            stopped()

        self.ready = False
        self.broker.stop().on_done(gone)

    def kill(self) -> None:
        """kill -9: whatever it had planned doesn't happen; the page cache stays."""
        if self.ended:
            return
        self._world.ended(self)
        self.ready = False
        self.ended = True
        self.loop.kill()
        self._world.network.kill(self.name)
        self.machine.disk.release_locks()


class Machine:
    """`id` is that of the node on it. Of one id there may be two machines: an old one, and the one that replaced it."""

    def __init__(
        self, world: Surroundings, shape: Shape, node: NodeShape, random: SimRandom, address: str | None = None
    ) -> None:
        self.id = node.id
        self.shape = node
        self.address = address or node.address
        self.name = f"node{node.id}" if address is None else f"node{node.id}'"
        self.clock = MachineClock(world.timeline, node.offset_s, node.rate)
        self.disk = MountedDisk(random.fork("disk"))
        self.disk.now_ms = self.clock.now_ms
        self.disk.struck = world.struck
        settings = shape.settings_of(node)
        if address is not None:
            settings["listeners"] = settings["listeners"].replace(node.address, address)
        self.config = BrokerConfig.parse(settings)
        self.process: NodeProcess | None = None
        self.down = False
        """It is to stay as it is: nobody starts it."""
        self.wiped = 0
        self.sync_failed = False
        """What that lost is known after a restart only."""
        self.on_lost_cache: Callable[[Machine], None] | None = None
        self.events: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._cluster = shape
        self._world = world
        self._random = random
        self._lives = 0

    @property
    def up(self) -> bool:
        return self.process is not None and not self.process.ended

    @property
    def ready(self) -> bool:
        return self.process is not None and self.process.ready

    @property
    def frozen(self) -> bool:
        return self.up and self.running.loop.held is not None

    @property
    def running(self) -> NodeProcess:
        assert self.process is not None
        assert not self.process.ended
        return self.process

    @property
    def directory_id(self) -> bytes:
        """Of the metadata's folder, as it is formatted now; empty where it isn't."""
        identity = read_identity(self._environment(), self.config.metadata_folder, write=False)
        return b"" if identity is None else identity.directory_id

    @property
    def folders(self) -> list[str]:
        return list(dict.fromkeys((*self.config.folders, self.config.metadata_folder)))

    # -- its disks

    def format(self, *, first: bool) -> None:
        """As `tidelog format` does it; only the `first` time are there voters to begin with."""
        environment = self._environment()
        for folder in self.folders:
            self.disk.make_folders(folder)
        self.disk.sync_folder("/")
        begins = AS_SETTINGS_SAY
        if not self._cluster.static:
            named = first and self.shape.is_controller
            begins = Begins(initial=self._cluster.initial) if named else Begins(joins=True)
        format_node(environment, self.config, [encode_record(one, 0) for one in default_bootstrap()], begins=begins)

    def forget_metadata(self) -> None:
        """The disk of its metadata comes back empty, and is formatted for its cluster as Kafka's tool would."""
        assert self.shape.own_metadata_disk
        self.wipe([METADATA])
        environment = self._environment()
        self.disk.make_folders(METADATA)
        self.disk.sync_folder("/")
        format_metadata(environment, METADATA, [], None)
        format_folder(environment, METADATA, FolderIdentity(CLUSTER_ID, self.id, environment.random.uuid()))

    def _environment(self) -> Environment:
        """For what is done to its disks while no node runs on it."""
        return Environment(
            self.clock,
            SimLoop(self._world.timeline, self._random.fork("format")),
            self.disk,
            self._world.network.view("formats"),
            self._random.fork(f"format {self.wiped}"),
        )

    def wipe(self, folders: list[str]) -> None:
        """These folders are on disks that come back empty."""
        assert not self.up, f"{self.name} runs"
        self.disk.failing_syncs = 0  # it is another disk
        for folder in filter(self.disk.exists, folders):  # one may be bare still, of the last time
            self.disk.remove_tree(folder)
        self.disk.sync_folder("/")
        self.wiped += 1
        bare = self._random.fork(f"wipe {self.wiped}").chance(NOT_FORMATTED)
        if set(folders) == set(self.folders) and (self._cluster.static or not bare):
            self.format(first=False)
        self._world.struck("wiped disk")
        self._world.note(f"{', '.join(folders)}: wiped", self.id)

    def has_stray(self, topic: str, index: int, topic_id: bytes) -> bool:
        """Whether files of this very partition were put aside."""
        start = f"{topic}-{index}."
        named = [
            f"{folder}/{name}/{PARTITION_METADATA}"
            for folder in self.config.folders
            for name in self.disk.list_folder(folder)
            if name.startswith(start) and name.endswith(STRAY_FOLDER)
        ]
        own = uuid_text(topic_id).encode()
        return any(self.disk.exists(path) and own in self.disk.read_whole(path) for path in named)

    # -- its life

    def start(self) -> None:
        assert not self.up, f"{self.name} runs already"
        self._lives += 1
        self.sync_failed = self.disk.failing_syncs > 0
        self._world.note(f"life {self._lives} begins", self.id)
        self.process = NodeProcess(self, self._world, self._lives, self._random.fork(f"life {self._lives}"))

    def kill(self) -> None:
        if self.up:
            self.running.kill()
            self._world.struck("kill")
            self._world.note("killed", self.id)

    def lost_cache(self) -> None:
        """What its disks haven't synced is about to be lost, or may be."""
        if self.on_lost_cache is not None:
            self.on_lost_cache(self)

    def lose_power(self) -> None:
        self.lost_cache()
        if self.process is not None:
            self.process.kill()
        self.disk.crash()
        self._world.struck("power loss")
        self._world.note("the power is gone", self.id)

    def freeze(self) -> None:
        if self.up and not self.frozen:
            self.running.loop.freeze()
            self._world.struck("freeze")
            self._world.note("frozen", self.id)

    def thaw(self) -> None:
        if self.frozen:
            self.running.loop.thaw()
            self._world.note("thawed", self.id)


def _is_of_disk(error: BaseException) -> bool:
    if isinstance(error, FolderError):
        return isinstance(error.__cause__, OSError)
    if isinstance(error, KafkaError):
        return error.code is ErrorCode.KAFKA_STORAGE_ERROR
    return isinstance(error, OSError)
