"""A process that may open no more files for a moment: what couldn't be opened or loaded then is when it may again.

Whichever of the calls that need a descriptor is the one that fails.
"""

import errno

import pytest

from tests.apis.sim_broker import SimBroker, batch, produce_fields
from tests.apis.txn import Txn, read_committed
from tests.batches import Producer
from tests.group_requests import commit_fields
from tidelog.sim.world.disk import SimDisk, SimFile
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
SERVED_AGAIN_S = 30.0
"""In virtual time."""


class FewDescriptorsDisk(SimDisk):
    """After `left` more calls that need a descriptor, `failing` of them fail."""

    left = -1
    failing = 0
    error = errno.EMFILE

    def take(self, path: str) -> None:
        if self.left > 0:
            self.left -= 1
        elif self.left == 0 and self.failing:
            self.failing -= 1
            raise OSError(self.error, "Not now", path)

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.take(path)
        return super().open(path, create=create)

    def list_folder(self, path: str) -> list[str]:
        self.take(path)
        return super().list_folder(path)

    def read_whole(self, path: str) -> bytes:
        self.take(path)
        return super().read_whole(path)

    def sync_folder(self, path: str) -> None:
        self.take(path)
        super().sync_folder(path)

    def sync_all(self, path: str) -> None:
        self.take(path)
        super().sync_all(path)


def disk_after(ending: str) -> FewDescriptorsDisk:
    disk = FewDescriptorsDisk(SimRandom(1))
    sim_broker = SimBroker(SETTINGS, disk=disk)
    sim_broker.make_topic("tide")
    for _ in range(3):
        sim_broker.append("tide", b"x")
    found = {"key_type": 0, "coordinator_keys": ["readers"]}
    while sim_broker.ask(ApiKey.FIND_COORDINATOR, 4, found).coordinators[0].error_code:
        sim_broker.pass_time(0.1)
    commit = commit_fields("readers", {("tide", 0): 2})
    while sim_broker.ask(ApiKey.OFFSET_COMMIT, 9, commit).topics[0].partitions[0].error_code:
        sim_broker.pass_time(0.1)
    if ending == "stop":
        sim_broker.wait(sim_broker.broker.stop())
    sim_broker.kill()
    return disk


def ask(sim_broker: SimBroker) -> tuple[ErrorCode, ErrorCode, int]:
    """What a producer, and a group that asks for its offset, are told."""
    produced = sim_broker.ask(ApiKey.PRODUCE, 9, produce_fields("tide", batch(b"y")))
    fetched = sim_broker.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "readers", "topics": None}]}).groups[0]
    offsets = [partition.committed_offset for topic in fetched.topics for partition in topic.partitions]
    return (
        ErrorCode(produced.responses[0].partition_responses[0].error_code),
        ErrorCode(fetched.error_code),
        offsets[0] if offsets else -1,
    )


@pytest.mark.parametrize(("ending", "failing"), [("stop", 1), ("kill", 1), ("kill", 3)])
def test_whichever_open_it_was_all_is_served_again(ending: str, failing: int) -> None:
    reached = 0
    for left in range(200):
        disk = disk_after(ending)
        sim_broker = SimBroker(SETTINGS, disk=disk)
        disk.left, disk.failing = left, failing
        first = ask(sim_broker)
        sim_broker.pass_time(2.0)
        if disk.failing == failing:
            break
        reached += 1
        disk.left = -1
        deadline = sim_broker.timeline.now + SERVED_AGAIN_S
        while (answer := ask(sim_broker)) != (ErrorCode.NONE, ErrorCode.NONE, 2):
            assert sim_broker.timeline.now < deadline, f"call {left}: {first}, and to the end {answer}"
            sim_broker.pass_time(0.5)
        sim_broker.check()
    assert reached > 5


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_what_nobody_asks_for_is_opened_and_loaded_in_the_end(ending: str) -> None:
    """Retention has to reach its log, transactions and groups have timers."""
    disk = disk_after(ending)
    sim_broker = SimBroker(SETTINGS, disk=disk)
    disk.left, disk.failing = 0, 1_000_000
    sim_broker.pass_time(3.0)
    assert sim_broker.services.store.unopened() != []
    disk.failing = 0
    sim_broker.pass_time(SERVED_AGAIN_S)
    assert sim_broker.services.store.unopened() == []
    assert [shard.index for shard in sim_broker.services.groups.shards.loaded()] == [0]


@pytest.mark.parametrize("error", [errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR])
def test_a_log_that_cannot_be_opened_for_what_the_process_lacks_is_opened_later(error: int) -> None:
    disk = disk_after("kill")
    sim_broker = SimBroker(SETTINGS, disk=disk)
    disk.error, disk.left, disk.failing = error, 0, 1
    assert ask(sim_broker) != (ErrorCode.NONE, ErrorCode.NONE, 2)
    sim_broker.pass_time(SERVED_AGAIN_S)
    assert ask(sim_broker) == (ErrorCode.NONE, ErrorCode.NONE, 2)


def test_what_is_behind_a_first_batch_that_came_before_the_log_could_be_opened_waits_for_it() -> None:
    disk = disk_after("kill")
    sim_broker = SimBroker(SETTINGS, disk=disk)

    def send(sequence: int) -> ErrorCode:
        records = batch(b"%d" % sequence, producer=Producer(70, 0, sequence))
        answer = sim_broker.ask(ApiKey.PRODUCE, 9, produce_fields("tide", records))
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    disk.left, disk.failing = 0, 1_000_000
    assert send(0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    disk.failing = 0
    assert send(1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert [send(sequence) for sequence in (0, 1, 2)] == [ErrorCode.NONE] * 3


def test_a_transaction_whose_abort_met_it_is_aborted_later() -> None:
    """The abort is noted in an index before its marker is written: whichever of the two files couldn't be opened."""
    disk = FewDescriptorsDisk(SimRandom(1))
    sim_broker = SimBroker(SETTINGS | {"tidelog.open.files.max": "16"}, disk=disk)
    sim_broker.make_topic("tide", 40)
    for attempt in range(6):
        txn = Txn(sim_broker, "bank")
        assert txn.init() == 0
        assert txn.add("tide", 0) == 0
        assert txn.send("tide", b"aborted") == 0
        for partition in range(1, 40):  # its file is closed, as one that is used least
            sim_broker.append("tide", b"x", partition=partition)
        disk.left, disk.failing = attempt, 1
        while txn.abort():  # its coordinator's log may be the one that can't be opened
            sim_broker.pass_time(0.5)
        sim_broker.pass_time(SERVED_AGAIN_S)
        assert txn.state == "CompleteAbort", f"call {attempt}"
        disk.left = -1
    assert read_committed(sim_broker, "tide") == []
    assert len(sim_broker.partition("tide").log.segments[0].aborted(disk).entries()) == 6
