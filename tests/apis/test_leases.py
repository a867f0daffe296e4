"""Two-phase transactions with a lease, through raw requests on virtual time: who is aborted, and who never is."""

import pytest

from tests.apis.sim_broker import SimBroker
from tests.apis.txn import SECOND, Txn, fetch, read_committed
from tidelog.wire.errors import ErrorCode
from tidelog.wire.leases import LEASED_MS, NO_TIMEOUT_MS, PREPARE, PREPARED_MS, RENEW

SETTINGS = {"transaction.two.phase.commit.enable": "true", "tidelog.transaction.lease.ms": "60000"}


@pytest.fixture
def sim_broker() -> SimBroker:
    made = SimBroker(SETTINGS)
    made.make_topic("accounts", 2)
    return made


def leased(sim_broker: SimBroker, name: str = "bank") -> Txn:
    """A producer with a record in an open two-phase transaction with a lease."""
    txn = Txn(sim_broker, name, versions=SECOND)
    assert txn.init(version=6, enable2_pc=True, timeout_ms=LEASED_MS) == 0
    assert txn.send("accounts", b"one") == 0
    assert txn.describe().transaction_timeout_ms == LEASED_MS
    return txn


def test_what_nobody_renews_is_aborted_and_readers_go_on(sim_broker: SimBroker) -> None:
    txn = leased(sim_broker)
    other = Txn(sim_broker, "other", versions=SECOND)
    assert other.init() == 0
    assert other.send("accounts", b"two") == 0
    assert other.commit() == 0
    sim_broker.pass_time(59.0)
    assert (txn.state, fetch(sim_broker, "accounts").last_stable_offset) == ("Ongoing", 0)
    sim_broker.pass_time(2.0)
    sim_broker.settle()
    assert txn.state == "CompleteAbort"
    assert read_committed(sim_broker, "accounts") == [b"two"]


def test_whoever_comes_back_late_finds_it_aborted(sim_broker: SimBroker) -> None:
    txn = leased(sim_broker)
    sim_broker.pass_time(61.0)
    sim_broker.settle()
    assert txn.verify(PREPARE) == ErrorCode.PRODUCER_FENCED
    assert txn.verify(RENEW) == ErrorCode.PRODUCER_FENCED
    assert txn.commit() == ErrorCode.INVALID_TXN_STATE
    assert read_committed(sim_broker, "accounts") == []


def test_what_is_renewed_stays(sim_broker: SimBroker) -> None:
    txn = leased(sim_broker)
    for _ in range(10):
        sim_broker.pass_time(50.0)
        assert txn.verify(RENEW) == 0
    sim_broker.pass_time(50.0)
    assert txn.send("accounts", b"two", partition=1) == 0  # whoever joins a partition is heard of, too
    sim_broker.pass_time(50.0)
    assert txn.state == "Ongoing"
    sim_broker.pass_time(11.0)
    assert txn.state == "CompleteAbort"


def test_what_is_prepared_is_never_aborted_by_time(sim_broker: SimBroker) -> None:
    txn = leased(sim_broker)
    assert txn.verify(PREPARE) == 0
    assert txn.verify(PREPARE) == 0
    assert txn.describe().transaction_timeout_ms == PREPARED_MS
    sim_broker.pass_time(24 * 3600.0)
    assert txn.state == "Ongoing"
    assert txn.commit() == 0
    assert read_committed(sim_broker, "accounts") == [b"one"]


def test_the_next_transaction_has_a_lease_again(sim_broker: SimBroker) -> None:
    txn = leased(sim_broker)
    assert txn.verify(PREPARE) == 0
    assert txn.commit() == 0
    assert txn.send("accounts", b"two") == 0
    sim_broker.pass_time(61.0)
    sim_broker.settle()
    assert txn.state == "CompleteAbort"
    assert read_committed(sim_broker, "accounts") == [b"one"]


def test_a_lease_begins_anew_with_a_restart_and_what_is_prepared_stays_so(sim_broker: SimBroker) -> None:
    txn, prepared = leased(sim_broker), leased(sim_broker, "prepared")
    assert prepared.verify(PREPARE) == 0
    sim_broker.pass_time(50.0)
    again = SimBroker(SETTINGS, disk=sim_broker.kill())
    txn.sim_broker = prepared.sim_broker = again
    again.pass_time(50.0)
    assert (txn.state, prepared.state) == ("Ongoing", "Ongoing")
    again.pass_time(61.0)
    again.settle()
    assert (txn.state, prepared.state) == ("CompleteAbort", "Ongoing")
    assert prepared.commit() == 0
    assert read_committed(again, "accounts") == [b"one"]


@pytest.mark.parametrize("timeout_ms", [60_000, NO_TIMEOUT_MS])
def test_two_phase_transactions_of_other_clients_have_no_lease(sim_broker: SimBroker, timeout_ms: int) -> None:
    txn = Txn(sim_broker, versions=SECOND)
    assert txn.init(version=6, enable2_pc=True, timeout_ms=timeout_ms) == 0
    assert txn.send("accounts", b"one") == 0
    sim_broker.pass_time(24 * 3600.0)
    assert (txn.state, txn.describe().transaction_timeout_ms) == ("Ongoing", NO_TIMEOUT_MS)
    assert txn.verify(RENEW) == txn.verify(PREPARE) == 0


def test_leases_can_be_off() -> None:
    sim_broker = SimBroker({**SETTINGS, "tidelog.transaction.lease.ms": "0"})
    sim_broker.make_topic("accounts")
    txn = Txn(sim_broker, versions=SECOND)
    assert txn.init(version=6, enable2_pc=True, timeout_ms=LEASED_MS) == 0
    assert txn.send("accounts", b"one") == 0
    assert txn.describe().transaction_timeout_ms == NO_TIMEOUT_MS


def test_holding_begins_nothing(sim_broker: SimBroker) -> None:
    txn = leased(sim_broker)
    assert txn.commit() == 0
    assert txn.verify(RENEW) == txn.verify(PREPARE) == ErrorCode.INVALID_TXN_STATE
    assert txn.state == "CompleteCommit"
    plain = Txn(sim_broker, "plain", versions=SECOND)
    assert plain.init() == 0
    assert plain.send("accounts", b"one") == 0
    assert plain.verify(PREPARE) == ErrorCode.INVALID_TXN_STATE


def test_the_names_that_leases_are_asked_by_are_no_topics(sim_broker: SimBroker) -> None:
    txn = leased(sim_broker)
    assert txn.add(PREPARE) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert txn.verify(PREPARE, partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert txn.describe().transaction_timeout_ms == LEASED_MS
