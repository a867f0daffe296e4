"""The machine that a broker runs on, as the metadata has it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.apis.sim_broker import SimBroker
from tidelog.apis.shared.controller_channel import ControllerChannel
from tidelog.controller.placement import hosts_of
from tidelog.env.promise import Promise
from tidelog.metadata.image import BROKER_RESOURCE
from tidelog.sim.world.disk import SimDisk
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

OWN = (BROKER_RESOURCE, "1")


def said(broker: SimBroker) -> str | None:
    return broker.services.metadata.image.configs.get(OWN, {}).get("tidelog.host")


def again(broker: SimBroker, **settings: str) -> SimBroker:
    """The next life, on the same disk."""
    disk: SimDisk = broker.disk
    broker.wait(broker.broker.stop())
    disk.release_locks()
    return SimBroker({name.replace("_", "."): value for name, value in settings.items()}, disk=disk)


def asks_for_settings(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[Callable[[], Promise[Any]]], Promise[Any]]
) -> list[object]:
    """What the controller is asked to change in settings; `answer` may ask it really."""
    asked: list[object] = []
    ask = ControllerChannel.ask

    def noted(self: ControllerChannel, request: object, timeout_ms: int) -> Promise[Any]:
        if not isinstance(request, IncrementalAlterConfigsRequest):
            return ask(self, request, timeout_ms)
        asked.append(request)
        return answer(lambda: ask(self, request, timeout_ms))

    monkeypatch.setattr(ControllerChannel, "ask", noted)
    return asked


def test_what_a_broker_says_of_its_host_is_in_the_metadata_before_it_serves() -> None:
    broker = SimBroker({"tidelog.host": "machine"})
    assert said(broker) == "machine"
    assert hosts_of(broker.services.metadata.image) == {1: "machine"}
    moved = again(broker, tidelog_host="another")
    assert said(moved) == "another"
    silent = again(moved)
    assert said(silent) is None, "who says nothing is where it listens"
    assert OWN not in silent.services.metadata.image.configs


def test_a_broker_that_said_so_before_says_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SimBroker({"tidelog.host": "machine"})
    asked = asks_for_settings(monkeypatch, lambda ask: ask())
    assert said(again(broker, tidelog_host="machine")) == "machine"
    assert not asked


def test_other_settings_of_the_broker_can_be_changed_beside_it() -> None:
    broker = SimBroker({"tidelog.host": "machine"})
    config = {"name": "log.retention.ms", "config_operation": 0, "value": "1000"}
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configs": [config]}
    answer: Any = broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert said(broker) == "machine"


def test_no_host_is_said_for_all_brokers_at_once() -> None:
    broker = SimBroker()
    config = {"name": "tidelog.host", "config_operation": 0, "value": "machine"}
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": "", "configs": [config]}
    answer: Any = broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("answers", [True, False])
def test_a_controller_that_does_not_take_it_keeps_nobody_from_work(
    answers: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a controller might that isn't Tidelog's."""
    refused = AlterConfigsResourceResponse(error_code=ErrorCode.INVALID_CONFIG, error_message="no such setting")
    timed_out = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    takes_it = False

    def answer(ask: Callable[[], Promise[Any]]) -> Promise[Any]:
        if takes_it:
            return ask()
        if not answers:
            return Promise[Any].failed(timed_out)
        return Promise[Any].resolved(IncrementalAlterConfigsResponse(responses=[refused]))

    asked = asks_for_settings(monkeypatch, answer)
    broker = SimBroker({"tidelog.host": "machine"})
    assert said(broker) is None
    assert "the controller doesn't take tidelog.host=machine of this broker" in caplog.text
    broker.pass_time(35)
    assert len(asked) == 2, "it is asked again"
    takes_it = True
    broker.pass_time(35)
    assert said(broker) == "machine"
