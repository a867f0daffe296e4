"""Starting a broker on a disk that fails, or from which something was lost: what it says then."""

import pytest

from tests.apis.sim_broker import SETTINGS, SimBroker
from tidelog.broker import Broker
from tidelog.config import BrokerConfig
from tidelog.env import Environment
from tidelog.raft.folder import FolderError
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.inode import FileNode
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.network import SimNetwork
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode, KafkaError

METADATA = "/data/__cluster_metadata-0"


class AgeingDisk(SimDisk):
    """The sync after `lasts` others fails."""

    lasts = -1

    def sync_node(self, node: FileNode, path: str) -> None:
        self._age()
        super().sync_node(node, path)

    def sync_folder(self, path: str) -> None:
        self._age()
        super().sync_folder(path)

    def sync_all(self, path: str) -> None:
        self._age()
        super().sync_all(path)

    def _age(self) -> None:
        if self.lasts == 0:
            self.failing_syncs = 1
        self.lasts -= 1


def scenario_run(disk: SimDisk) -> None:
    """A life of a broker, with a topic in it, that ends cleanly."""
    sim_broker = SimBroker(disk=disk)
    sim_broker.make_topic("tide")
    sim_broker.append("tide", b"x")
    sim_broker.wait(sim_broker.broker.stop())
    disk.release_locks()


def start(disk: SimDisk) -> BaseException | None:
    """What keeps a broker from starting on the disk, if anything does. It doesn't take for ever."""
    timeline, random = Timeline(), SimRandom(3)
    network = SimNetwork(timeline, random.fork("network")).view("broker")
    loop = SimLoop(timeline, random.fork("loop"))
    broker = Broker(Environment(timeline, loop, disk, network, random.fork("broker")), BrokerConfig.parse(SETTINGS))
    try:
        started = broker.start()
    except (OSError, FolderError) as error:
        return error
    timeline.run_until(lambda: started.done, timeline.now + 30)
    assert started.done, "it neither starts nor says why not"
    return started.error


def test_a_start_that_the_metadatas_disk_fails_says_so_whichever_sync_it_was() -> None:
    told = 0
    for lasts in range(40):
        disk = AgeingDisk(SimRandom(lasts))
        scenario_run(disk)
        disk.lasts = lasts
        error = start(disk)
        if disk.lasts >= 0:
            break
        if isinstance(error, KafkaError):
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR, error
            assert METADATA in str(error), error
            assert "Input/output error" in str(error), error
            told += 1
        else:
            assert error is None or isinstance(error, OSError), error
    assert told >= 2


@pytest.mark.parametrize(
    "lost", ["the folder", "its files", "all but the checkpoint of its first start", "its records"]
)
def test_partitions_without_the_metadata_that_named_them_are_not_put_aside(lost: str) -> None:
    disk = SimDisk(SimRandom(1))
    scenario_run(disk)
    for name in disk.list_folder(METADATA):
        path = f"{METADATA}/{name}"
        if name.endswith(".log") and lost == "its records":
            disk.open(path).truncate(0)
        elif lost != "all but the checkpoint of its first start" or not name.endswith(".checkpoint"):
            disk.remove(path)
    if lost == "the folder":
        disk.remove_tree(METADATA)
    error = start(disk)
    assert isinstance(error, FolderError)
    assert "restore the metadata log" in str(error)
    assert "tide-0" in disk.list_folder("/data")
