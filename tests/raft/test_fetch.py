"""Fetches from the leader of the metadata log: what is answered, and where a follower cuts."""

import pytest

from tests.raft.test_quorum import ONE, THREE, TWO, handle, leader_of_three, quorum
from tidelog.raft.events import LeaderHeard, LogEnd, Resigned
from tidelog.raft.fetch import Diverging, Fetch, FetchAnswer, Refused, Served, SnapshotNeeded, answer_fetch, cut_at
from tidelog.raft.snapshot import SnapshotId
from tidelog.wire.errors import ErrorCode


class Epochs:
    """A log that is nothing but where its epochs end."""

    def __init__(self, *ends: tuple[int, int], log_start: int = 0) -> None:
        self.log_start = log_start
        self._ends = [LogEnd(epoch, offset) for epoch, offset in ends]

    @property
    def end(self) -> LogEnd:
        return self._ends[-1] if self._ends else LogEnd(0, self.log_start)

    def end_of_epoch(self, epoch: int) -> LogEnd:
        return next((end for end in reversed(self._ends) if end.epoch <= epoch), LogEnd(0, self.log_start))


def answered(log: Epochs, end: LogEnd, *snapshots: SnapshotId) -> FetchAnswer:
    return answer_fetch(leader_of_three(), log, snapshots, Fetch(TWO, 1, end))


@pytest.mark.parametrize(("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_fetch_of_another_epoch_is_refused(epoch: int, error: ErrorCode) -> None:
    fetch = Fetch(TWO, epoch, LogEnd())
    assert answer_fetch(leader_of_three(), Epochs(), (), fetch) == Refused(error)


def test_fetch_from_who_does_not_lead_is_refused() -> None:
    resigned, follower = leader_of_three(), quorum(ONE, ONE, TWO, THREE)
    handle(resigned, Resigned())
    handle(follower, LeaderHeard(3, 1))
    for q in (resigned, follower):
        refused = answer_fetch(q, Epochs(), (), Fetch(TWO, 1, LogEnd()))
        assert refused == Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)


LOG = Epochs((1, 10), (3, 20), (4, 25))


@pytest.mark.parametrize(
    ("end", "answer"),
    [
        (LogEnd(0, 0), Served()),
        (LogEnd(1, 10), Served()),
        (LogEnd(1, 4), Served()),
        (LogEnd(4, 25), Served()),
        (LogEnd(3, 21), Diverging(LogEnd(3, 20))),
        (LogEnd(2, 15), Diverging(LogEnd(1, 10))),  # an epoch that the leader has nothing of
        (LogEnd(2, 5), Diverging(LogEnd(1, 10))),
        (LogEnd(5, 25), Diverging(LogEnd(4, 25))),
        (LogEnd(4, 26), Diverging(LogEnd(4, 25))),
    ],
)
def test_logs_agree_or_part_ways_at_the_end_of_an_epoch(end: LogEnd, answer: FetchAnswer) -> None:
    assert answered(LOG, end) == answer


SNAPSHOTS = (SnapshotId(12, 3), SnapshotId(22, 4))
BEHIND = Epochs((3, 20), (4, 25), log_start=12)


@pytest.mark.parametrize(
    ("end", "answer"),
    [
        (LogEnd(3, 12), Served()),  # who loaded the oldest one
        (LogEnd(4, 22), Served()),
        (LogEnd(0, 0), SnapshotNeeded(SNAPSHOTS[1])),
        (LogEnd(3, 11), SnapshotNeeded(SNAPSHOTS[1])),
        (LogEnd(2, 12), SnapshotNeeded(SNAPSHOTS[1])),
        (LogEnd(4, 12), SnapshotNeeded(SNAPSHOTS[1])),
        (LogEnd(2, 24), SnapshotNeeded(SNAPSHOTS[1])),  # where they part ways isn't in the log any more
        (LogEnd(3, 24), Diverging(LogEnd(3, 20))),
    ],
)
def test_what_is_not_in_the_log_any_more_is_in_a_checkpoint(end: LogEnd, answer: FetchAnswer) -> None:
    assert answered(BEHIND, end, *SNAPSHOTS) == answer
    left = (SnapshotId(0, 0), SnapshotId(5, 1))  # of a crash, before they were removed
    assert answered(BEHIND, end, *left, *SNAPSHOTS) == answer


@pytest.mark.parametrize(
    ("diverging", "cut"),
    [
        (LogEnd(3, 18), 18),
        (LogEnd(3, 30), 20),
        (LogEnd(2, 15), 10),  # the follower has nothing of that epoch
        (LogEnd(2, 7), 7),
        (LogEnd(0, 0), 0),
    ],
)
def test_follower_cuts_where_the_logs_may_still_agree(diverging: LogEnd, cut: int) -> None:
    assert cut_at(LOG, diverging) == cut


def test_two_logs_find_where_they_part_ways_each_cut_shorter_than_the_last() -> None:
    leader, follower = Epochs((1, 10), (4, 12), (7, 30)), [(1, 10), (2, 13), (4, 15), (5, 16), (6, 18)]
    cuts: list[int] = []
    while True:
        log = Epochs(*follower)
        answer = answer_fetch(leader_of_three(), leader, (), Fetch(TWO, 1, log.end))
        if answer == Served():
            break
        assert isinstance(answer, Diverging)
        cuts.append(cut_at(log, answer.end))
        follower = [(epoch, min(end, cuts[-1])) for epoch, end in follower]
        follower = [pair for at, pair in enumerate(follower) if at == 0 or pair[1] > follower[at - 1][1]]
    assert cuts == [12, 10]
