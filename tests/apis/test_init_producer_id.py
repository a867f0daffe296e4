"""InitProducerId: ids that nobody else has, for idempotent producers; transactional ones: test_transactions.py."""

from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker
from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey


@pytest.fixture
def broker() -> SimBroker:
    return SimBroker()


def ask(broker: SimBroker, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    """(error, producer id, epoch)."""
    asked = {"transactional_id": None, "transaction_timeout_ms": 60_000, **fields}
    found = broker.ask(ApiKey.INIT_PRODUCER_ID, version, asked)
    return found.error_code, found.producer_id, found.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_an_id(broker: SimBroker, version: int) -> None:
    code, producer_id, epoch = ask(broker, version)
    assert (code, epoch) == (0, 0)
    assert producer_id >= 0


def test_no_id_is_given_twice(broker: SimBroker) -> None:
    ids = [ask(broker)[1] for _ in range(50)]
    waiting = [
        broker.send(ApiKey.INIT_PRODUCER_ID, 5, {"transactional_id": None, "transaction_timeout_ms": 1})
        for _ in range(2500)
    ]
    broker.pass_time(5)
    ids += [asked.response.producer_id for asked in waiting]
    assert len(set(ids)) == 2550


def test_no_id_is_given_twice_after_a_kill(broker: SimBroker) -> None:
    given = [ask(broker)[1] for _ in range(5)]
    again = SimBroker(disk=broker.kill())
    assert min(ask(again)[1] for _ in range(5)) > max(given)


def test_a_producer_that_has_an_id_gets_a_new_one(broker: SimBroker) -> None:
    _, first, _ = ask(broker)
    code, second, epoch = ask(broker, producer_id=first, producer_epoch=0)
    assert (code, epoch) == (0, 0)
    assert second != first


@pytest.mark.parametrize("half", [{"producer_id": 7, "producer_epoch": -1}, {"producer_id": -1, "producer_epoch": 3}])
def test_half_of_what_a_producer_has_is_invalid(broker: SimBroker, half: dict[str, int]) -> None:
    assert ask(broker, **half) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_an_empty_transactional_id_is_invalid(broker: SimBroker) -> None:
    assert ask(broker, transactional_id="") == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_while_the_controller_has_no_ids_the_client_is_told_to_try_again(
    broker: SimBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_controller(*_: object) -> Promise[Any]:
        return Promise.failed(RuntimeError("no controller"))

    monkeypatch.setattr(type(broker.services.controller), "submit", no_controller)
    code, producer_id, epoch = ask(broker)
    assert ErrorCode(code).retriable
    assert (producer_id, epoch) == (-1, -1)
    monkeypatch.undo()
    assert ask(broker)[0] == 0
