"""What is taken for damage in a cluster: each kind of it is told, and what may be so isn't."""

from collections.abc import Callable

import pytest

from tidelog.raft.control import control_batch, data_batch, voters_record
from tidelog.raft.voters import ReplicaKey, Voter, VoterSet
from tidelog.sim.cluster.ledger import KnownTopic, Ledger
from tidelog.sim.cluster.sights import Sights
from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.batch import iterate

ONE, TWO = ReplicaKey(1, b"1" * 16), ReplicaKey(2, b"2" * 16)
ID, OTHER_ID = b"i" * 16, b"o" * 16


def see(sights: Sights, node_id: int, batch: bytes | bytearray) -> None:
    sights.saw_committed(node_id, next(iterate(batch)), bytes(batch))


def test_two_leaders_of_an_epoch_are_found() -> None:
    sights = Sights()
    sights.saw_leader(1, 1)
    sights.saw_leader(2, 2)
    sights.saw_leader(1, 1)
    sights.saw_leader(1, -1)
    with pytest.raises(Violation, match="epoch 1 has two leaders, 1 and 2"):
        sights.saw_leader(1, 2)


def test_epoch_that_falls_is_found_but_for_another_disk() -> None:
    sights = Sights()
    sights.saw_epoch(ONE, 5)
    sights.saw_epoch(ReplicaKey(1, b"3" * 16), 0)
    with pytest.raises(Violation, match="fell from 5 to 4"):
        sights.saw_epoch(ONE, 4)


def test_committed_batches_that_differ_are_found() -> None:
    sights = Sights()
    first, second = data_batch([b"a", b"b"], 0, 1, 0), data_batch([b"c"], 2, 1, 0)
    see(sights, 1, first)
    see(sights, 1, second)
    see(sights, 2, first)
    assert sights.end == 3
    with pytest.raises(Violation, match="offset 2 is another one on node 2"):
        see(sights, 2, data_batch([b"d"], 2, 2, 0))


def test_committed_batches_that_overlap_are_found() -> None:
    sights = Sights()
    see(sights, 1, data_batch([b"a", b"b"], 0, 1, 0))
    see(sights, 1, data_batch([b"c"], 2, 1, 0))
    with pytest.raises(Violation, match="another one has one from 0"):
        see(sights, 2, data_batch([b"b"], 1, 1, 0))


def test_voters_are_those_of_the_last_committed_record() -> None:
    sights = Sights()
    for offset, keys in ((0, (ONE,)), (1, (ONE, TWO))):
        see(sights, 1, control_batch([voters_record(VoterSet(tuple(map(Voter, keys))))], offset, 1, 0))
    assert sights.voters == [(0, frozenset({ONE})), (1, frozenset({ONE, TWO}))]


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    made.created(made.asked("tide", 1), ID)
    return made


def leave(topic: KnownTopic) -> None:
    topic.leaving = True


def stay(_: KnownTopic) -> None:
    """Nobody touches it."""


def go(topic: KnownTopic) -> None:
    topic.leaving = topic.gone = True


@pytest.mark.parametrize(
    ("what", "shown", "told"),
    [
        (stay, {}, "is lost"),
        (stay, {"tide": OTHER_ID}, "acknowledged as"),
        (stay, {"tide": ID, "ebb": OTHER_ID}, "nobody asked for"),
        (go, {"tide": ID}, "its deletion was acknowledged"),
    ],
)
def test_acknowledged_changes_that_are_not_there_are_found(
    ledger: Ledger, what: Callable[[KnownTopic], None], shown: dict[str, bytes], told: str
) -> None:
    what(ledger.topics["tide"])
    with pytest.raises(Violation, match=told):
        ledger.check_all("node 1", shown)


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        (stay, {"tide": ID}),
        (leave, {"tide": ID}),  # nobody knows whether it was deleted
        (leave, {}),
        (go, {}),
        (go, {"tide": OTHER_ID}),  # a request that was sent twice
    ],
)
def test_what_nobody_knows_may_be_either_way(
    ledger: Ledger, what: Callable[[KnownTopic], None], shown: dict[str, bytes]
) -> None:
    what(ledger.topics["tide"])
    ledger.check_all("node 1", shown)


def test_setting_is_the_one_that_was_acknowledged_last_or_one_in_doubt(ledger: Ledger) -> None:
    topic = ledger.topics["tide"]
    ledger.altered(topic, 7)
    topic.doubtful_values.add(8)
    for value in (7, 8):
        ledger.check_value("node 1", topic, value)
    for value in (6, None):
        with pytest.raises(Violation, match="acknowledged was 7"):
            ledger.check_value("node 1", topic, value)
