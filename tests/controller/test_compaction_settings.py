"""Settings of compaction are those that the broker was started with; a topic's own may change at any time."""

import pytest

from tests.controller.test_configs import OK, alter, on_broker, outcome, put
from tidelog.wire.errors import ErrorCode


@pytest.mark.parametrize("name", ["log.cleaner.threads", "log.cleaner.dedupe.buffer.size", "log.cleaner.backoff.ms"])
def test_they_can_not_be_changed_while_the_broker_runs(name: str) -> None:
    assert outcome(on_broker(put(name, "2"))) == (
        ErrorCode.INVALID_REQUEST,
        f"Cannot update these configs dynamically: [{name}]",
    )


def test_what_topics_fall_back_to_can() -> None:
    assert alter(on_broker(put("log.cleaner.min.cleanable.ratio", "0.2")))[1] == [OK]
