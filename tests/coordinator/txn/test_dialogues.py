"""How markers, and questions of who may append, become requests to other brokers; and what their answers mean."""

from collections import deque

from tidelog.coordinator import bounds
from tidelog.coordinator.txn.decide import Producer
from tidelog.coordinator.txn.delivery import Addressed, MarkerDialogue
from tidelog.coordinator.txn.markers import EndMarker
from tidelog.coordinator.txn.membership import Check, MembershipDialogue
from tidelog.env.promise import Promise
from tidelog.rpc.errors import Lost, Unsupported
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.wire.topic_partition import TopicPartition

COMMIT, ABORT = EndMarker(7, 3, True, 11, 2), EndMarker(8, 0, False, 11)


def addressed(place: TopicPartition, marker: EndMarker) -> Addressed:
    return Addressed(place, marker, Promise())


def outcome(promise: Promise[None]) -> ErrorCode | None:
    """None: nothing is known yet."""
    error = promise.error
    assert error is None or isinstance(error, KafkaError)
    return None if not promise.done else ErrorCode.NONE if error is None else error.code


# ---- markers ----


def test_markers_of_several_transactions_go_in_one_request() -> None:
    waiting = deque(
        [
            addressed(("a", 0), COMMIT),
            addressed(("b", 1), ABORT),
            addressed(("a", 2), COMMIT),
            addressed(("c", 0), COMMIT),
        ]
    )
    every = list(waiting)
    request, sent = MarkerDialogue().request(waiting)
    assert request == WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=7,
                producer_epoch=3,
                transaction_result=True,
                topics=[
                    WritableTxnMarkerTopic(name="a", partition_indexes=[0, 2]),
                    WritableTxnMarkerTopic(name="c", partition_indexes=[0]),
                ],
                coordinator_epoch=11,
                transaction_version=2,
            ),
            WritableTxnMarker(
                producer_id=8,
                producer_epoch=0,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name="b", partition_indexes=[1])],
                coordinator_epoch=11,
            ),
        ]
    )
    assert sent == every
    assert not waiting


def test_two_markers_of_one_producer_go_one_after_the_other() -> None:
    """An answer doesn't say which of them it is about. One of them is of a shard that was loaded again meanwhile."""
    again = COMMIT._replace(coordinator_epoch=12)
    waiting = deque(
        [
            addressed(("a", 0), COMMIT),
            addressed(("a", 0), again),
            addressed(("b", 0), ABORT),
            addressed(("a", 1), again),
        ]
    )
    every = list(waiting)
    _, first = MarkerDialogue().request(waiting)
    assert first == [every[0], every[2]]
    _, second = MarkerDialogue().request(waiting)
    assert second == [every[1], every[3]]
    assert not waiting


def test_a_request_has_so_many_markers_and_the_next_has_the_others() -> None:
    waiting = deque(addressed(("a", index), COMMIT) for index in range(bounds.MARKERS_TOGETHER + 5))
    _, first = MarkerDialogue().request(waiting)
    _, second = MarkerDialogue().request(waiting)
    assert [one.place[1] for one in (*first, *second)] == list(range(bounds.MARKERS_TOGETHER + 5))
    assert len(second) == 5


def test_each_partition_is_told_its_own_outcome() -> None:
    asked = [addressed(("a", index), COMMIT) for index in range(4)] + [addressed(("a", 0), ABORT)]
    codes = [0, int(ErrorCode.NOT_LEADER_OR_FOLLOWER), 12345]

    def result(producer_id: int, told: list[tuple[int, int]]) -> WritableTxnMarkerResult:
        places = [WritableTxnMarkerPartitionResult(partition_index=index, error_code=code) for index, code in told]
        return WritableTxnMarkerResult(
            producer_id=producer_id, topics=[WritableTxnMarkerTopicResult(name="a", partitions=places)]
        )

    fenced = int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    response = WriteTxnMarkersResponse(markers=[result(8, [(0, fenced)]), result(7, list(enumerate(codes)))])
    MarkerDialogue().answered(asked, response)
    assert [outcome(one.written) for one in asked] == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_SERVER_ERROR,  # a code that isn't known
        ErrorCode.UNKNOWN_SERVER_ERROR,  # it wasn't named
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ]


def test_markers_whose_request_got_lost_fail_with_what_passes() -> None:
    asked = [addressed(("a", 0), COMMIT), addressed(("a", 0), ABORT)]
    MarkerDialogue().failed(asked, Lost("node 3", "it closed the connection"))
    assert [outcome(one.written) for one in asked] == [ErrorCode.NETWORK_EXCEPTION] * 2


# ---- who may append ----


def check(name: str, *places: TopicPartition, verify_only: bool = True) -> Check:
    return Check(name, Producer(7, 3), places, verify_only, Promise())


def told(name: str, *codes: tuple[str, int, ErrorCode]) -> AddPartitionsToTxnResult:
    topics = [
        AddPartitionsToTxnTopicResult(
            name=topic,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=int(code))
            ],
        )
        for topic, index, code in codes
    ]
    return AddPartitionsToTxnResult(transactional_id=name, topic_results=topics)


def test_several_producers_are_asked_about_in_one_request_each_once() -> None:
    verified, joins, again = (
        check("x", ("a", 0), ("a", 1)),
        check("y", ("b", 0), verify_only=False),
        check("x", ("a", 5)),
    )
    waiting = deque([verified, joins, again])
    request, asked = MembershipDialogue().request(waiting)
    assert request == AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id="x",
                producer_id=7,
                producer_epoch=3,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(name="a", partitions=[0, 1])],
            ),
            AddPartitionsToTxnTransaction(
                transactional_id="y",
                producer_id=7,
                producer_epoch=3,
                verify_only=False,
                topics=[AddPartitionsToTxnTopic(name="b", partitions=[0])],
            ),
        ]
    )
    assert asked == [verified, joins]
    assert list(waiting) == [again]
    assert MembershipDialogue().request(waiting)[1] == [again]


def test_each_producer_is_told_of_its_partitions() -> None:
    first, second, third = check("x", ("a", 0), ("b", 1)), check("y", ("a", 0)), check("z", ("a", 0))
    response = AddPartitionsToTxnResponse(
        results_by_transaction=[
            told("y", ("a", 0, ErrorCode.PRODUCER_FENCED)),
            told("x", ("b", 1, ErrorCode.TRANSACTION_ABORTABLE), ("a", 0, ErrorCode.NONE)),
        ]
    )
    MembershipDialogue().answered([first, second, third], response)
    assert [one.codes.result() for one in (first, second, third)] == [
        {("a", 0): ErrorCode.NONE, ("b", 1): ErrorCode.TRANSACTION_ABORTABLE},
        {("a", 0): ErrorCode.PRODUCER_FENCED},
        {("a", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE},  # it wasn't named: the client sends again
    ]


def test_what_fails_as_a_whole_is_told_to_all() -> None:
    for code, seen in (
        (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.INVALID_TXN_STATE,
        ),  # between brokers: not the client's fault
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ):
        asked = [check("x", ("a", 0)), check("y", ("b", 0))]
        MembershipDialogue().answered(asked, AddPartitionsToTxnResponse(error_code=int(code)))
        assert [one.codes.result() for one in asked] == [{("a", 0): seen}, {("b", 0): seen}]


def test_a_coordinator_that_is_lost_is_asked_again_one_that_is_too_old_is_not() -> None:
    for error, verified, joined in (
        (Lost("node 3", "it closed the connection"), ErrorCode.NETWORK_EXCEPTION, ErrorCode.NETWORK_EXCEPTION),
        (Unsupported("node 3 knows version 3 at most"), ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION),
    ):
        asked = [check("x", ("a", 0)), check("y", ("a", 0), verify_only=False)]
        MembershipDialogue().failed(asked, error)
        assert [one.codes.result()["a", 0] for one in asked] == [verified, joined]
