"""Acknowledgements are lost with five batches in flight: the client sends again, and nothing doubles or moves."""

import time
from pathlib import Path

import pytest

from tests.reading import create_topic
from tests.served import Tidelog, free_port
from tests.stories.load import Sender, account_for
from tests.stories.proxy import Proxy


@pytest.mark.parametrize(
    ("cuts", "answers_between"),
    [pytest.param(6, 15, id="six cuts"), pytest.param(40, 7, id="forty cuts", marks=pytest.mark.long)],
)
def test_lost_answers_neither_double_nor_reorder(tmp_path: Path, cuts: int, answers_between: int) -> None:
    proxy = Proxy(in_flight=5, answers_between=answers_between)
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    try:
        with Tidelog(tmp_path / "data", settings, port=free_port()) as broker:
            proxy.connect_to(broker.port)
            create_topic(broker.bootstrap, "numbers")
            sender = Sender(f"127.0.0.1:{proxy.port}", "numbers", 1).start()
            _wait_for_cuts(proxy, cuts)
            proxy.calm_down()
            sender.finish()
            account_for(broker.bootstrap, sender)
    finally:
        proxy.close()
    assert max(proxy.losses) == 5, f"never five in flight: {proxy.losses}"


def _wait_for_cuts(proxy: Proxy, cuts: int) -> None:
    deadline = time.monotonic() + 60.0
    while len(proxy.losses) < cuts:
        assert time.monotonic() < deadline, f"only {len(proxy.losses)} cuts in 60 s"
        time.sleep(0.01)
