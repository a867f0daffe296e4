"""Replicas that a reassignment takes from this broker: their files go, and never those of one that it has."""

from typing import Any

from tests.apis.sim_broker import SimBroker
from tests.replica.test_directories import change, image_of, with_topic

ONLY_ELSEWHERE: dict[str, Any] = {"replicas": [2], "isr": [2], "leader": 2}
ONLY_HERE: dict[str, Any] = {"replicas": [1], "isr": [1], "leader": 1}


def folders(broker: SimBroker) -> list[str]:
    """Of partitions, with what they are called while they wait for their removal, but without random parts."""
    names = [name for name in broker.disk.list_folder("/data") if name.startswith("tide-")]
    return [name.split(".")[0] + name[name.rfind("-") :] if "." in name else name for name in names]


def ends(broker: SimBroker, partitions: int) -> list[int]:
    return [broker.partition("tide", index).log.log_end for index in range(partitions)]


def test_files_go_when_the_metadata_says_so() -> None:
    broker = with_topic(2)
    for index in range(2):
        broker.append("tide", b"x", partition=index)
    change(broker, 0, replicas=[1, 2], isr=[1])
    change(broker, 0, leader=2, isr=[2, 1])
    assert folders(broker) == ["tide-0", "tide-1"]
    change(broker, 0, **ONLY_ELSEWHERE)
    assert folders(broker) == ["tide-0-delete", "tide-1"]
    broker.pass_time(120.0)
    assert folders(broker) == ["tide-1"]
    assert broker.append("tide", b"y", partition=1) == 1


def test_who_waits_is_sent_to_another_broker() -> None:
    broker = with_topic()
    broker.append("tide", b"x")
    partition = broker.partition("tide")
    broker.hold_syncs()
    codes: list[int] = []
    partition.wait_for_ack(5, lambda code: codes.append(int(code)))
    broker.let_sync()
    change(broker, 0, **ONLY_ELSEWHERE)
    assert codes == [6], "NOT_LEADER_OR_FOLLOWER"


def test_files_go_also_of_what_nobody_opened() -> None:
    broker = with_topic(2)
    for index in range(2):
        broker.append("tide", b"x", partition=index)
    again = SimBroker(disk=broker.kill())
    assert again.services.replicas.opened(("tide", 0)) is None
    change(again, 0, **ONLY_ELSEWHERE)
    assert folders(again) == ["tide-0-delete", "tide-1"]


def test_a_replica_that_comes_again_begins_anew_and_stays_so_after_a_kill() -> None:
    """Nothing that a journal has of its former self may come back behind what it has now."""
    broker = with_topic()
    for _ in range(5):
        broker.append("tide", b"former")
    change(broker, 0, **ONLY_ELSEWHERE)
    change(broker, 0, **ONLY_HERE)
    assert ends(broker, 1) == [0]
    broker.append("tide", b"new")
    assert image_of(broker).replicas == (1,)
    again = SimBroker(disk=broker.kill())
    assert ends(again, 1) == [1], "the start heard of its removal once more"
    assert "tide-0" in folders(again)


def test_what_was_reassigned_while_the_broker_was_down_is_set_aside() -> None:
    broker = with_topic(2)
    for index in range(2):
        broker.append("tide", b"x", partition=index)
    change(broker, 0, **ONLY_ELSEWHERE)
    disk = broker.kill()
    gone = next(name for name in disk.list_folder("/data") if name.endswith("-delete"))
    disk.rename(f"/data/{gone}", "/data/tide-0")
    again = SimBroker(disk=disk)
    assert folders(again) == ["tide-0-stray", "tide-1"]
