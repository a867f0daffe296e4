"""Groups in which something changed and nobody asks: every partition has an owner in the end, and never two."""

from collections.abc import Callable

import pytest

from tests.apis.sim_broker import NOW_MS, SimBroker
from tests.apis.test_consumer_group_heartbeat import FAST, Port
from tests.apis.test_group_migration import Docks, assignment, code, read
from tidelog.coordinator.group.consumer.state import ConsumerGroup
from tidelog.wire.errors import ErrorCode

UPGRADE = {"group.consumer.migration.policy": "upgrade", "group.consumer.assignment.interval.ms": "1000"}
INTERVAL = {"group.consumer.assignment.interval.ms": "1000"}
HOUR_S = 3600


class OldClient:
    """A cooperative classic member in a group of the consumer protocol: it beats, and joins again when told to."""

    def __init__(self, docks: Docks, member_id: str, generation: int, uses: list[int]) -> None:
        self.docks = docks
        self.member_id = member_id
        self.generation = generation
        self.uses = uses
        self.joins = 0

    def beat(self) -> None:
        self.docks.sim_broker.pass_time(1.0)
        if self.docks.classic_beat(self.member_id, self.generation) is ErrorCode.NONE:
            return
        self.joins += 1
        joined = self.docks.classic_join(self.member_id, "tides", uses={"tides": self.uses})
        assert code(joined) is ErrorCode.NONE
        self.generation = joined.generation_id
        synced = self.docks.classic_sync(self.member_id, self.generation)
        if code(synced) is ErrorCode.NONE:
            self.uses = read(synced.assignment).get("tides", [])


def upgraded() -> tuple[Docks, OldClient]:
    """A group whose only classic member has half of the partitions, one of the new protocol the others."""
    docks = Docks(UPGRADE)
    docks.topic("tides", 4)
    old = OldClient(docks, docks.classic_member("tides"), 1, [0, 1, 2, 3])
    epoch = docks.join("new", "tides").member_epoch
    for _ in range(4):
        old.beat()
        epoch = docks.beat("new", epoch, uses={}).member_epoch
    assert old.uses == [0, 1]
    assert docks.describe().group_state == "Stable"
    return docks, old


def leaves(docks: Docks) -> None:
    docks.beat("new", -1)


def is_not_heard_of(docks: Docks) -> None:
    """Its session ends while the other one beats."""


@pytest.mark.parametrize("goes", [leaves, is_not_heard_of])
def test_what_the_last_member_of_the_new_protocol_had_goes_to_those_who_stay(goes: Callable[[Docks], None]) -> None:
    """Under the policy `upgrade`, where the group can't go back."""
    docks, old = upgraded()
    goes(docks)
    for _ in range(20):
        old.beat()
    assert isinstance(docks.group, ConsumerGroup)
    assert old.uses == [0, 1, 2, 3]
    assert docks.describe().group_state == "Stable"
    before = old.joins
    for _ in range(5):
        old.beat()
    assert old.joins == before, "once it has all, it isn't called any more"


def test_new_partitions_are_seen_though_only_classic_members_are_there() -> None:
    docks, old = upgraded()
    docks.beat("new", -1)
    for _ in range(6):
        old.beat()
    docks.grow("tides", 6)
    for _ in range(6):
        old.beat()
    assert old.uses == [0, 1, 2, 3, 4, 5]


def test_an_upgrade_amid_a_rebalance_takes_nothing_from_those_who_still_use_it() -> None:
    """Cooperative members keep what they have until told otherwise, also where a generation came to nothing."""
    docks = Docks()
    docks.topic("tides", 4)
    a = docks.classic_member("tides")
    b = docks.classic_join("", "tides").member_id
    docks.send_join(b, "tides")
    assert docks.classic_join(a, "tides", uses={"tides": [0, 1, 2, 3]}).generation_id == 2
    c = docks.classic_join("", "tides").member_id
    docks.send_join(c, "tides")  # before the leader handed in anything: the generation ends
    new = docks.join("new", "tides")
    assert docks.told(new) == {}, "everything is a's"
    held, epoch = [0, 1, 2, 3], new.member_epoch
    gained: list[int] = []
    clients = [OldClient(docks, a, 2, held), OldClient(docks, b, 2, []), OldClient(docks, c, 2, [])]
    for client in clients[1:]:
        joined = docks.classic_join(client.member_id, "tides", uses={})
        client.generation = joined.generation_id
        docks.classic_sync(client.member_id, client.generation)
    for _ in range(12):
        for client in clients:
            client.beat()
        answer = docks.beat("new", epoch, uses={"tides": gained} if gained else {})
        epoch, told = answer.member_epoch, docks.told(answer)
        gained = told.get("tides", []) if told is not None else gained
        used = [partition for client in clients for partition in client.uses] + gained
        assert len(used) == len(set(used)), f"two owners: {used}"
    assert sorted(used) == [0, 1, 2, 3]
    assert [len(client.uses) for client in clients] == [1, 1, 1]


def test_what_was_assigned_counts_before_what_a_member_says() -> None:
    """A claim to what another one was given is an old one."""
    docks = Docks()
    docks.topic("tides", 4)
    a = docks.classic_member("tides")
    b = docks.classic_join("", "tides").member_id
    waiting = docks.send_join(b, "tides", uses={"tides": [2, 3]})
    docks.classic_join(a, "tides", uses={"tides": [0, 1, 2, 3]})
    assert waiting.done
    parts = {a: assignment({"tides": [0, 1, 2, 3]}), b: assignment({})}
    docks.classic_sync(a, 2, parts)
    docks.join("new", "tides")
    owners = {member.member_id: member.assignment.topic_partitions for member in docks.describe().members}
    assert [one.partitions for one in owners[a]] == [[0, 1, 2, 3]]
    assert owners[b] == []


def set_back(port: Port, monkeypatch: pytest.MonkeyPatch) -> Port:
    timeline = port.sim_broker.timeline
    monkeypatch.setattr(timeline, "now_ms", lambda: NOW_MS + int((timeline.now - HOUR_S) * 1000))
    return port


def restart(port: Port, monkeypatch: pytest.MonkeyPatch) -> Port:
    """Virtual time begins anew with each life: the wall clock is an hour behind what was written."""
    settings = {**FAST, **INTERVAL}
    return Port(sim_broker=SimBroker(settings, disk=port.sim_broker.kill()))


@pytest.mark.parametrize("goes_back", [set_back, restart])
def test_a_clock_that_is_set_back_holds_up_no_assignment(
    goes_back: Callable[[Port, pytest.MonkeyPatch], Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = Port(INTERVAL)
    port.sim_broker.pass_time(HOUR_S)
    port.topic("tides", 4)
    first = port.join("a", "tides")
    assert port.told(first) == {"tides": [0, 1, 2, 3]}
    port = goes_back(port, monkeypatch)
    second = port.join("b", "tides")
    held: dict[str, dict[str, list[int]]] = {"a": {"tides": [0, 1, 2, 3]}, "b": {}}
    epochs = {"a": first.member_epoch, "b": second.member_epoch}
    for _ in range(4):
        port.sim_broker.pass_time(1.0)
        for name in ("a", "b"):
            answer = port.beat(name, epochs[name], uses=held[name])
            epochs[name] = answer.member_epoch
            held[name] = port.told(answer) or held[name]
    assert [len(held[name].get("tides", [])) for name in ("a", "b")] == [2, 2]
