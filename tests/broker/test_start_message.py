"""What whoever starts a node is warned of."""

import pytest

from tidelog.broker.start_message import nobody_to_join
from tidelog.config import BrokerConfig

AUTO_JOIN = {"controller.quorum.auto.join.enable": "true", "process.roles": "broker,controller", "node.id": "2"}
OTHERS = {"controller.quorum.bootstrap.servers": "127.0.0.1:19093", "controller.listener.names": "CONTROLLER"}
LISTENERS = {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [({}, False), (AUTO_JOIN, True), ({**AUTO_JOIN, **OTHERS, **LISTENERS}, False)],
    ids=["alone", "joins nobody", "joins others"],
)
def test_controller_that_is_to_join_and_is_told_of_nobody_is_warned(settings: dict[str, str], told: bool) -> None:
    assert (nobody_to_join(BrokerConfig.parse(settings)) is not None) is told
