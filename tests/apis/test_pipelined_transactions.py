"""Clients that send the next batch before the last one is answered, in transactions: as if each had been waited for.

The first batch of a transaction in a partition has to wait for its coordinator. What was sent behind it on the same
connection comes after it, whatever becomes of it; what comes on another connection is judged when it is appended.
"""

from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker
from tests.apis.txn import Txn, read_all, read_committed
from tests.raw import build
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.world.loop import SimLoop
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.produce import ProduceRequest, ProduceResponse

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
JOINS = {"produce": 12, "end": 5}
CLASSIC = {"produce": 11, "end": 3}


@pytest.fixture
def sim_broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("accounts", 3)
    return made


class Pipe:
    """A connection whose requests leave in one go. `answers`: the error codes of each answer, in order."""

    def __init__(self, sim_broker: SimBroker, name: str = "pipe", *, topic_id: bytes | None = None) -> None:
        loop = SimLoop(sim_broker.timeline, SimRandom(7))
        self.sim_broker = sim_broker
        self.topic_id = topic_id
        self.answers: list[list[int]] = []
        self.lost = False
        self.connection = ClientConnection(name, loop, sim_broker.network, self._was_lost)

    def _was_lost(self) -> None:
        self.lost = True

    def produce(self, txn: Txn, *batches: tuple[int, int], acks: int = -1, version: int | None = None) -> None:
        """One request: partitions and sequences; a batch's only value tells both."""
        version = version or txn.versions["produce"]
        parts = [
            {"index": index, "records": txn.batch(b"%d:%d" % (index, sequence), sequence=sequence)}
            for index, sequence in batches
        ]
        topic = {"topic_id": self.topic_id} if version >= 13 else {"name": "accounts"}
        fields = {
            "transactional_id": txn.name,
            "acks": acks,
            "timeout_ms": 5000,
            "topic_data": [topic | {"partition_data": parts}],
        }
        request = build(ProduceRequest, fields)
        if acks:
            self.connection.ask(request, ProduceResponse, ApiKey.PRODUCE, version, self.answered, 60.0)
        else:
            self.connection.tell(request, version)

    def answered(self, response: Any) -> None:
        self.answers.append([one.error_code for topic in response.responses for one in topic.partition_responses])

    def wait(self, count: int) -> list[list[int]]:
        self.sim_broker.timeline.run_until(lambda: len(self.answers) >= count, self.sim_broker.timeline.now + 30.0)
        assert len(self.answers) == count, f"{len(self.answers)} of {count} were answered"
        return self.answers


def begun(sim_broker: SimBroker, versions: dict[str, int] = JOINS, name: str = "bank") -> Txn:
    txn = Txn(sim_broker, name, versions=versions)
    assert txn.init() == 0
    return txn


def in_log(sim_broker: SimBroker, index: int = 0) -> list[bytes]:
    return read_all(sim_broker, "accounts", index)


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", [12, 13])
def test_batches_in_one_write_are_all_taken(sim_broker: SimBroker, acks: int, version: int) -> None:
    txn = begun(sim_broker)
    pipe = Pipe(sim_broker, topic_id=sim_broker.partition("accounts").topic_id)
    for sequence in range(20):
        pipe.produce(txn, (0, sequence), acks=acks, version=version)
    assert pipe.wait(20) == [[0]] * 20
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"0:%d" % sequence for sequence in range(20)]


def test_nothing_isanswered_to_batches_that_ask_for_no_answer(sim_broker: SimBroker) -> None:
    txn, pipe = begun(sim_broker), Pipe(sim_broker)
    for sequence in range(4):
        pipe.produce(txn, (0, sequence), acks=0)
    pipe.produce(txn, (0, 4))
    assert pipe.wait(1) == [[0]]
    assert in_log(sim_broker) == [b"0:%d" % sequence for sequence in range(5)]
    assert not pipe.lost


def test_requests_that_name_a_part_of_the_partitions_before_them(sim_broker: SimBroker) -> None:
    txn, pipe = begun(sim_broker), Pipe(sim_broker)
    pipe.produce(txn, (0, 0), (1, 0))
    pipe.produce(txn, (1, 1))
    pipe.produce(txn, (0, 1), (2, 0))
    pipe.produce(txn, (2, 1), (1, 2), (0, 2))
    assert pipe.wait(4) == [[0, 0], [0], [0, 0], [0, 0, 0]]
    assert txn.commit() == 0
    for index, count in ((0, 3), (1, 3), (2, 2)):
        assert read_committed(sim_broker, "accounts", index) == [b"%d:%d" % (index, number) for number in range(count)]


def test_acknowledgements_are_not_waited_for(sim_broker: SimBroker) -> None:
    """Only a join holds the connection up: once it is committed, the next ones are appended before its own sync."""
    txn, pipe = begun(sim_broker), Pipe(sim_broker)
    sim_broker.hold_syncs()
    for sequence in range(5):
        pipe.produce(txn, (0, sequence))
    sim_broker.pass_time(0.1)
    assert in_log_end(sim_broker) == 0
    held, sim_broker.loop.held_work = sim_broker.loop.held_work or [], []
    for begin in held:  # of the coordinator's log; what comes next is held again
        begin()
    sim_broker.pass_time(0.1)
    assert in_log_end(sim_broker) == 5
    assert pipe.answers == []
    sim_broker.let_sync()
    assert pipe.wait(5) == [[0]] * 5


def in_log_end(sim_broker: SimBroker) -> int:
    return sim_broker.partition("accounts").log.log_end


def test_an_end_behind_them_comes_last(sim_broker: SimBroker) -> None:
    txn, pipe = begun(sim_broker), Pipe(sim_broker)
    for sequence in range(3):
        pipe.produce(txn, (0, sequence))
    ended: list[int] = []
    request = build(EndTxnRequest, txn.end_fields(commit=True))
    pipe.connection.ask(request, EndTxnResponse, ApiKey.END_TXN, 5, lambda answer: ended.append(answer.error_code))
    assert pipe.wait(3) == [[0]] * 3
    sim_broker.pass_time(1.0)
    assert ended == [0]
    assert read_committed(sim_broker, "accounts") == [b"0:0", b"0:1", b"0:2"]


# -- joins that fail


def test_behind_a_join_that_fails_all_areanswered_and_come_again_in_order(sim_broker: SimBroker) -> None:
    """The coordinator can't commit for longer than it lets anybody wait."""
    txn, pipe = begun(sim_broker), Pipe(sim_broker)
    sim_broker.hold_syncs()
    for sequence in range(3):
        pipe.produce(txn, (0, sequence))
    assert pipe.wait(1) == [[ErrorCode.NOT_ENOUGH_REPLICAS]]
    sim_broker.let_sync()
    assert pipe.wait(3)[1:] == [[OUT_OF_ORDER]] * 2
    assert in_log(sim_broker) == []
    for sequence in range(3):
        pipe.produce(txn, (0, sequence))
    assert pipe.wait(6)[3:] == [[0]] * 3
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"0:0", b"0:1", b"0:2"]


def test_behind_a_join_of_a_producer_that_was_replaced_all_are_fenced(sim_broker: SimBroker) -> None:
    txn, pipe = begun(sim_broker), Pipe(sim_broker)
    assert begun(sim_broker).epoch > txn.epoch
    for sequence in range(3):
        pipe.produce(txn, (0, sequence))
    assert pipe.wait(3) == [[ErrorCode.INVALID_PRODUCER_EPOCH]] * 3
    assert in_log(sim_broker) == []


def test_a_coordinator_that_is_unloaded_meanwhile_is_asked_again(sim_broker: SimBroker) -> None:
    txn, pipe = begun(sim_broker), Pipe(sim_broker)
    sim_broker.hold_syncs()
    for sequence in range(3):
        pipe.produce(txn, (0, sequence))
    sim_broker.pass_time(0.1)
    shards = sim_broker.services.transactions.shards
    shards.unload(shards.of(txn.name).index)
    sim_broker.let_sync()
    answers = pipe.wait(3)
    assert answers[0] == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert all(codes in ([OUT_OF_ORDER], [ErrorCode.NOT_ENOUGH_REPLICAS]) for codes in answers[1:])
    for sequence in range(3):
        pipe.produce(txn, (0, sequence))
    assert pipe.wait(6)[3:] == [[0]] * 3
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"0:0", b"0:1", b"0:2"]


def test_partitions_that_are_no_part_of_it_fail_alone_in_the_first_version(sim_broker: SimBroker) -> None:
    txn, pipe = begun(sim_broker, CLASSIC), Pipe(sim_broker)
    assert txn.add("accounts", 0) == 0
    pipe.produce(txn, (0, 0), (1, 0))
    pipe.produce(txn, (1, 1), (0, 1))
    pipe.produce(txn, (0, 2))
    refused = ErrorCode.TRANSACTION_ABORTABLE
    assert pipe.wait(3) == [[0, refused], [refused, 0], [0]]
    assert txn.add("accounts", 1) == 0
    pipe.produce(txn, (1, 1))
    pipe.produce(txn, (1, 0))
    pipe.produce(txn, (1, 1))
    assert pipe.wait(6)[3:] == [[ErrorCode.NOT_ENOUGH_REPLICAS], [0], [0]]


def test_where_no_answer_is_asked_for_a_join_that_fails_closes(sim_broker: SimBroker) -> None:
    txn, pipe = begun(sim_broker), Pipe(sim_broker)
    begun(sim_broker)
    pipe.produce(txn, (0, 0), acks=0)
    pipe.produce(txn, (0, 1))
    sim_broker.pass_time(1.0)
    assert pipe.lost
    assert pipe.answers == []
    assert in_log(sim_broker) == []


# -- other connections


def test_what_was_sent_over_a_connection_that_is_gone_is_taken_and_known_when_it_comes_again(
    sim_broker: SimBroker,
) -> None:
    txn, pipe = begun(sim_broker), Pipe(sim_broker)
    sim_broker.hold_syncs()
    pipe.produce(txn, (0, 0))
    pipe.produce(txn, (0, 1))  # behind a join: it goes with the connection
    sim_broker.pass_time(0.1)
    pipe.connection.close()
    sim_broker.pass_time(0.1)
    again = Pipe(sim_broker, "again")
    for sequence in range(4):
        again.produce(txn, (0, sequence))
    sim_broker.pass_time(0.1)
    sim_broker.let_sync()
    assert again.wait(4) == [[0]] * 4
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"0:0", b"0:1", b"0:2", b"0:3"]


def test_a_batch_on_another_connection_is_judged_when_it_is_appended(sim_broker: SimBroker) -> None:
    """Both ask to join before either has appended; the first is in the log when the second's turn comes."""
    txn = begun(sim_broker)
    pipes = Pipe(sim_broker, "one"), Pipe(sim_broker, "two")
    sim_broker.hold_syncs()
    for sequence, pipe in enumerate(pipes):
        pipe.produce(txn, (0, sequence))
        sim_broker.pass_time(0.1)
    sim_broker.let_sync()
    assert [pipe.wait(1) for pipe in pipes] == [[[0]], [[0]]]
    assert in_log(sim_broker) == [b"0:0", b"0:1"]


def test_a_later_batch_on_another_connection_does_not_come_first(sim_broker: SimBroker) -> None:
    txn = begun(sim_broker)
    pipes = Pipe(sim_broker, "one"), Pipe(sim_broker, "two")
    sim_broker.hold_syncs()
    for sequence, pipe in ((1, pipes[0]), (0, pipes[1])):
        pipe.produce(txn, (0, sequence))
        sim_broker.pass_time(0.1)
    sim_broker.let_sync()
    assert [pipe.wait(1) for pipe in pipes] == [[[OUT_OF_ORDER]], [[0]]]
    pipes[0].produce(txn, (0, 1))
    assert pipes[0].wait(2)[1:] == [[0]]
    assert in_log(sim_broker) == [b"0:0", b"0:1"]
