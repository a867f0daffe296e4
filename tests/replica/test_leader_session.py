"""What a follower tells its leader of, request by request, and where it cuts its log: the pure part."""

import pytest

from tests.batches import Batch, Sent
from tidelog.log.epochs import LeaderEpochs
from tidelog.replica import following
from tidelog.replica.following import (
    LeaderSession,
    Limits,
    Place,
    Reaction,
    cut_at,
    reaction,
    whole_batches,
)
from tidelog.wire.errors import ErrorCode, KafkaError

LIMITS = Limits(wait_ms=500, min_bytes=1, max_bytes=1000, partition_bytes=100)
A, B = bytes([1] * 16), bytes([2] * 16)


def at(offset: int, *, epoch: int = 3, high_watermark: int = 0) -> Place:
    return Place(epoch, offset, epoch - 1, 0, high_watermark)


class Asked:
    """A request, as far as it is about partitions: (session, epoch, named with their offsets, forgotten)."""

    def __init__(self, session: LeaderSession, *, named_max: int = 100) -> None:
        session.check_invariants()
        request = session.next_request(7, 70, LIMITS, named_max)
        session.check_invariants()
        self.session = request.session_id, request.session_epoch
        self.named = [
            (topic.topic_id, one.partition, one.fetch_offset) for topic in request.topics for one in topic.partitions
        ]
        self.forgotten = [
            (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
        ]
        self.request = request

    @property
    def all(self) -> tuple[object, ...]:
        return self.session, self.named, self.forgotten


def test_a_session_names_what_changed_and_no_more() -> None:
    session = LeaderSession()
    session.fetch((A, 0), at(5))
    session.fetch((B, 1), at(0))
    assert Asked(session).all == ((0, 0), [(A, 0, 5), (B, 1, 0)], [])
    session.answered(99)
    assert Asked(session).all == ((99, 1), [], [])
    session.answered(99)
    session.fetch((A, 0), at(8))
    assert Asked(session).all == ((99, 2), [(A, 0, 8)], [])
    session.answered(99)
    session.leave((B, 1))
    assert Asked(session).all == ((99, 3), [], [(B, 1)])
    session.answered(99)
    session.fetch((B, 1), at(0))
    assert Asked(session).all == ((99, 4), [(B, 1, 0)], [])


def test_what_a_request_says_of_a_partition_and_of_this_broker() -> None:
    session = LeaderSession()
    session.fetch((A, 4), Place(leader_epoch=9, offset=50, last_epoch=8, log_start=10, high_watermark=40))
    request = Asked(session).request
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (7, 70)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 1000)
    [[named]] = [topic.partitions for topic in request.topics]
    assert (named.partition, named.current_leader_epoch, named.fetch_offset, named.last_fetched_epoch) == (4, 9, 50, 8)
    assert (named.log_start_offset, named.high_watermark, named.partition_max_bytes) == (10, 40, 100)


def test_a_moved_high_watermark_alone_is_not_told_to_the_leader_who_said_it() -> None:
    session = LeaderSession()
    session.fetch((A, 0), at(5))
    Asked(session)
    session.answered(99)
    session.fetch((A, 0), at(5, high_watermark=5))
    assert Asked(session).named == []


def test_what_left_and_came_back_unchanged_between_two_requests_is_not_named() -> None:
    session = LeaderSession()
    session.fetch((A, 0), at(5))
    Asked(session)
    session.answered(99)
    session.leave((A, 0))
    session.fetch((A, 0), at(5))
    assert Asked(session).all == ((99, 1), [], [])


def test_what_left_before_it_was_named_is_not_forgotten_either() -> None:
    session = LeaderSession()
    session.fetch((B, 0), at(0))
    session.fetch((A, 0), at(5))
    session.leave((A, 0))
    assert Asked(session).all == ((0, 0), [(B, 0, 0)], [])


def test_a_lost_session_says_all_again() -> None:
    session = LeaderSession()
    session.fetch((A, 0), at(5))
    session.fetch((B, 1), at(0))
    Asked(session)
    session.answered(99)
    session.leave((B, 1))
    session.lost(known=True)
    assert Asked(session).all == ((99, 0), [(A, 0, 5)], [])
    session.answered(100)
    session.lost(known=False)
    assert Asked(session).all == ((0, 0), [(A, 0, 5)], [])


def test_a_leader_without_room_for_a_session_is_told_all_each_time() -> None:
    session = LeaderSession()
    for index in range(3):
        session.fetch((A, index), at(index))
    assert Asked(session, named_max=2).named == [(A, 0, 0), (A, 1, 1)]
    session.answered(0)
    for _ in range(2):
        assert Asked(session, named_max=2).all == ((0, 0), [(A, 0, 0), (A, 1, 1), (A, 2, 2)], [])
        session.answered(0)
    Asked(session)
    session.answered(5)
    assert Asked(session).all == ((5, 1), [], [])


def test_many_partitions_are_named_by_several_requests() -> None:
    session = LeaderSession()
    for index in range(5):
        session.fetch((A, index), at(0))
    assert [index for _, index, _ in Asked(session, named_max=2).named] == [0, 1]
    session.answered(99)
    assert [index for _, index, _ in Asked(session, named_max=2).named] == [2, 3]
    session.answered(99)
    assert Asked(session, named_max=2).all == ((99, 2), [(A, 4, 0)], [])


def test_epochs_of_a_session_begin_again_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "EPOCH_MAX", 2)
    session = LeaderSession()
    session.fetch((A, 0), at(5))
    told: list[tuple[int, int]] = []
    for _ in range(5):
        told.append(Asked(session).session)
        session.answered(99)
    assert told == [(0, 0), (99, 1), (99, 2), (99, 1), (99, 2)]


# ---- where to cut ----


@pytest.mark.parametrize(
    ("told", "cut"),
    [
        ((3, 25), 25),  # the leader has less of an epoch that both have
        ((3, 35), 30),  # and more of it: this log goes up to where its next epoch begins
        ((2, 20), 20),  # an epoch that this log doesn't have: it may be equal up to the end of the one before
        ((2, 15), 20),  # however little the leader has of it: it says so when it is asked with that epoch
        ((1, 12), 12),
        ((0, 5), 5),  # older than all that is known here
        ((0, 50), 10),
        ((5, 33), 33),
        ((3, -1), 40),  # nothing is said
    ],
)
def test_a_log_is_cut_where_the_largest_common_epoch_ends(told: tuple[int, int], cut: int) -> None:
    epochs = LeaderEpochs([(1, 10), (3, 20), (5, 30)])
    assert cut_at(epochs, 40, *told) == cut


def test_a_log_without_epochs_is_cut_where_the_leader_says() -> None:
    assert [cut_at(LeaderEpochs(), 40, 3, end) for end in (0, 20, 60)] == [0, 20, 40]


# ---- what came ----


def test_the_batch_that_came_cut_is_left_out() -> None:
    batches = [Batch([Sent(b"x" * size)]).encode() for size in (10, 200, 30)]
    data = b"".join(batches)
    ends = [len(b"".join(batches[:number])) for number in range(4)]
    for size in range(len(data) + 1):
        assert whole_batches(memoryview(data), 0, size) == max(end for end in ends if end <= size)


def test_a_length_that_no_batch_has_is_damage() -> None:
    with pytest.raises(KafkaError) as raised:
        whole_batches(memoryview(bytes(200)), 0, 200)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_what_is_made_of_errors() -> None:
    assert reaction(ErrorCode.OFFSET_OUT_OF_RANGE) is Reaction.FIND
    assert reaction(ErrorCode.UNKNOWN_LEADER_EPOCH) is Reaction.SOON
    assert reaction(ErrorCode.KAFKA_STORAGE_ERROR) is Reaction.LATER
    assert reaction(31_000) is Reaction.LATER


def test_what_was_sent_and_could_not_be_taken_is_named_again() -> None:
    session = LeaderSession()
    session.fetch((A, 0), at(5))
    session.fetch((B, 1), at(0))
    Asked(session)
    session.answered(99)
    session.sent((A, 0))
    session.leave((A, 0))
    session.fetch((A, 0), at(5))
    assert Asked(session).all == ((99, 1), [(A, 0, 5)], [])
    session.answered(99)
    session.fetch((A, 0), at(5))
    assert Asked(session).named == []
