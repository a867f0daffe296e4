"""Transactions in the hands of someone who means harm, or whose disk, clock and topics do. On virtual time."""

import pytest

from tests.apis.sim_broker import SimBroker
from tests.apis.txn import Txn, read_committed
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SETTINGS = {"transaction.state.log.num.partitions": "2"}


def test_a_pattern_that_takes_long_holds_up_nobody() -> None:
    """Long transactional ids, each of which keeps all of the pattern's alternatives alive to its end."""
    sim_broker = SimBroker(SETTINGS)
    for number in range(8):
        name = "".join("ab"[number * 7919 >> place % 13 & 1] for place in range(1000))
        assert Txn(sim_broker, f"{name}-{number}").init() == 0
    sim_broker.loop.steps_a_slice = lambda: 1  # type: ignore[method-assign]
    alternatives = "|".join(f"(?:a|b)*a(?:a|b){{{count}}}" for count in range(1, 90))
    pattern = {"transactional_id_pattern": f"(?:{alternatives})-.*"}
    sim_broker.hold_syncs()  # and whatever else is done off the loop
    asked = sim_broker.send(ApiKey.LIST_TRANSACTIONS, 2, pattern)
    sim_broker.pass_time(1)
    assert not asked.done, "it is matched off the loop"
    sim_broker.let_sync()
    sim_broker.pass_time(1)
    assert len(asked.response.transaction_states) > 2


@pytest.mark.parametrize("pattern", ["(", "a" * 4001, "((a{0,99}b{0,99}){0,9}){0,9}"])
def test_patterns_that_are_none_or_too_large_are_refused(pattern: str) -> None:
    answer = SimBroker(SETTINGS).ask(ApiKey.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": pattern})
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


INDEX = "/data/accounts-0/00000000000000000000.txnindex"
ENTRY_BYTES = 34


def test_aborted_records_stay_unseen_when_the_power_fails_and_the_broker_is_killed_while_it_recovers() -> None:
    """A power loss leaves zeros for the end of the transaction index, which is built again: killed before that is
    durable, the broker builds it again once more."""
    sim_broker = SimBroker(SETTINGS)
    sim_broker.make_topic("accounts")
    bank = Txn(sim_broker)
    assert bank.init() == 0
    for number in range(3):
        assert (bank.add("accounts"), bank.send("accounts", b"aborted %d" % number), bank.abort()) == (0, 0, 0)
    sim_broker.pass_time(70)  # the recovery point moves, with a snapshot of the producers
    assert sim_broker.partition("accounts").log.recovery_point == 6
    assert (bank.add("accounts"), bank.send("accounts", b"aborted 3"), bank.abort()) == (0, 0, 0)
    assert (bank.add("accounts"), bank.send("accounts", b"committed"), bank.commit()) == (0, 0, 0)

    disk = sim_broker.kill()
    index = disk.read_whole(INDEX)
    assert len(index) == 4 * ENTRY_BYTES
    disk.write_whole(INDEX, index[:-ENTRY_BYTES] + bytes(ENTRY_BYTES))
    for _ in range(3):
        sim_broker = SimBroker(SETTINGS, disk=disk)
        sim_broker.partition("accounts").check_leader()
        disk = sim_broker.kill()
        disk.crash()
    assert read_committed(SimBroker(SETTINGS, disk=disk), "accounts") == [b"committed"]


def open_many(sim_broker: SimBroker, count: int) -> list[Txn]:
    sim_broker.make_topic("accounts")
    found = [Txn(sim_broker, f"bank-{number}") for number in range(count)]
    for bank in found:
        assert (bank.init(), bank.add("accounts"), bank.send("accounts", b"open")) == (0, 0, 0)
    return found


def test_many_transactions_that_time_out_together_are_aborted_a_few_at_a_time() -> None:
    sim_broker = SimBroker(SETTINGS)
    banks = open_many(sim_broker, 250)
    sim_broker.pass_time(60.002)
    states = [bank.state for bank in banks]
    assert 0 < states.count("Ongoing") < 250, "others have had their turn"
    sim_broker.pass_time(1)
    assert {bank.state for bank in banks} == {"CompleteAbort"}
    assert sim_broker.partition("accounts").log.producers.first_unstable == -1


def test_many_ends_that_a_kill_interrupted_are_gone_on_with() -> None:
    sim_broker = SimBroker(SETTINGS)
    banks = open_many(sim_broker, 250)
    for bank in banks:
        sim_broker.send(ApiKey.END_TXN, 3, bank.end_fields(commit=True))
    sim_broker = SimBroker(SETTINGS, disk=sim_broker.kill())
    for bank in banks:
        bank.sim_broker = sim_broker
        bank.find()
    sim_broker.pass_time(5)
    assert {bank.state for bank in banks} == {"CompleteCommit"}
    assert read_committed(sim_broker, "accounts") == [b"open"] * 250
