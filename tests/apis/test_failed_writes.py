"""A batch of an idempotent producer that couldn't be written: what is behind it waits until it was sent again."""

import errno
from collections.abc import Callable

import pytest

from tests.apis.sim_broker import SimBroker, batch, produce_fields
from tests.apis.txn import read_all
from tests.batches import Producer
from tidelog.replica.replicas import UNKNOWN_MAX
from tidelog.sim.world.disk import SimFile
from tidelog.wire.batch import SEQUENCE_MAX
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

STORAGE_ERROR, OUT_OF_ORDER = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
IN_TURN = ErrorCode.NOT_ENOUGH_REPLICAS
"""Come again, behind what was refused before."""

Send = Callable[..., int]


@pytest.fixture(params=[9, 12, 13])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def sim_broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide")
    return made


@pytest.fixture
def send(sim_broker: SimBroker, version: int) -> Send:
    """Produces one batch of one record, whose value is its sequence; the error."""
    topic = sim_broker.partition("tide").topic_id

    def send(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> int:
        records = batch(b"%d" % sequence, producer=Producer(producer_id, epoch, sequence))
        fields = produce_fields("tide", records)
        if version >= 13:
            fields["topic_data"][0]["topic_id"] = topic
        return sim_broker.ask(ApiKey.PRODUCE, version, fields).responses[0].partition_responses[0].error_code

    return send


def full(sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    sim_broker.disk.capacity = sim_broker.disk.used_bytes()


def room(sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    sim_broker.disk.capacity = None
    monkeypatch.undo()


def no_descriptors(sim_broker: SimBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *, create: bool = False) -> SimFile:
        raise OSError(errno.EMFILE, "too many open files", path)

    monkeypatch.setattr(sim_broker.disk, "open", refuse)


@pytest.mark.parametrize("breaks", [full, no_descriptors])
def test_what_is_behind_a_first_batch_that_failed_waits_for_it(
    sim_broker: SimBroker, send: Send, breaks: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(sim_broker, monkeypatch)
    assert send(0) == STORAGE_ERROR
    room(sim_broker, monkeypatch)
    assert send(1) == IN_TURN
    assert send(2) == IN_TURN
    for sequence in range(3):
        assert send(sequence) == 0
    assert read_all(sim_broker, "tide") == [b"0", b"1", b"2"]
    assert sim_broker.partition("tide").expected_again == 0, "nobody is waited for any more"


def test_other_producers_and_later_epochs_do_not_wait(
    sim_broker: SimBroker, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(sim_broker, monkeypatch)
    assert send(0) == STORAGE_ERROR
    room(sim_broker, monkeypatch)
    assert send(5, producer_id=8) == 0, "any sequence is taken of one that isn't known"
    assert send(1) == IN_TURN
    assert send(0, epoch=1) == 0
    assert send(1, epoch=1) == 0
    assert send(0) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_earliest_one_that_failed_counts(
    sim_broker: SimBroker, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(sim_broker, monkeypatch)
    assert [send(sequence) for sequence in (5, 3, 4)] == [STORAGE_ERROR, STORAGE_ERROR, IN_TURN]
    room(sim_broker, monkeypatch)
    assert [send(sequence) for sequence in (5, 4, 3, 4, 5)] == [IN_TURN, IN_TURN, 0, 0, 0]


def test_order_is_kept_where_sequences_begin_anew(
    sim_broker: SimBroker, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(sim_broker, monkeypatch)
    assert send(SEQUENCE_MAX) == STORAGE_ERROR
    room(sim_broker, monkeypatch)
    assert send(0) == IN_TURN
    assert send(SEQUENCE_MAX) == 0
    assert send(0) == 0


def test_a_batch_that_is_bad_is_not_waited_for(sim_broker: SimBroker, send: Send) -> None:
    """Its producer gives it up, or knows it better: and what was damaged may name anybody."""
    records = bytearray(batch(b"0", producer=Producer(7, 0, 0)))
    records[-1] ^= 1
    answer = sim_broker.ask(ApiKey.PRODUCE, 9, produce_fields("tide", bytes(records)))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert send(1) == 0


def test_nobody_is_waited_for_for_ever(sim_broker: SimBroker, send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    full(sim_broker, monkeypatch)
    assert send(0) == STORAGE_ERROR
    room(sim_broker, monkeypatch)
    assert sim_broker.partition("tide").expected_again == 1
    sim_broker.pass_time(3600.0)
    assert send(1, producer_id=8) == 0
    assert sim_broker.partition("tide").expected_again == 0
    assert send(1) == 0


def test_a_gap_is_told_once_its_producer_no_longer_tries(
    sim_broker: SimBroker, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave the batch up: whatever comes behind it must not wait in vain."""
    assert send(0) == 0
    full(sim_broker, monkeypatch)
    assert [send(sequence) for sequence in (1, 2)] == [STORAGE_ERROR, IN_TURN]
    room(sim_broker, monkeypatch)
    sim_broker.pass_time(29.0)
    assert send(2) == IN_TURN
    sim_broker.pass_time(2.0)
    assert send(2) == OUT_OF_ORDER
    assert [send(sequence) for sequence in (1, 2)] == [0, 0]
    assert send(4) == OUT_OF_ORDER, "of what was never tried nothing is known"


def test_what_is_behind_batches_for_a_topic_that_was_not_known_yet_waits_for_them() -> None:
    """A client may hear of a new topic before its leader does."""
    broker = SimBroker()

    def send(sequence: int) -> int:
        fields = produce_fields("tide", batch(b"%d" % sequence, producer=Producer(7, 0, sequence)))
        return broker.ask(ApiKey.PRODUCE, 9, fields).responses[0].partition_responses[0].error_code

    assert [send(0), send(1)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    broker.make_topic("tide")
    assert [send(2), send(1)] == [IN_TURN] * 2
    assert [send(0), send(1), send(2)] == [0, 0, 0]
    assert read_all(broker, "tide") == [b"0", b"1", b"2"]


def test_partitions_that_nobody_has_are_not_remembered_without_bound() -> None:
    broker = SimBroker()
    replicas = broker.services.replicas
    for number in range(UNKNOWN_MAX + 5):
        for place in ((f"made up {number}", 0), ("tide", -number)):
            data = memoryview(batch(b"x", producer=Producer(number, 0, 0)))
            replicas.expect_again(place, data, broker.broker.env.clock.now_ms())
    assert replicas.unknown_expected_again == UNKNOWN_MAX
