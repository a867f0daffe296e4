"""Transactions in the hands of someone who means harm, or whose disk, clock and topics do. On virtual time."""

import time

import pytest

from tests.apis.harbour import Harbour
from tests.apis.txn import Txn
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SETTINGS = {"transaction.state.log.num.partitions": "2"}
PROMPT_S = 1.0


def test_a_pattern_that_takes_long_holds_up_nobody() -> None:
    """Long transactional ids, each of which keeps all of the pattern's alternatives alive to its end."""
    harbour = Harbour(SETTINGS)
    for number in range(8):
        name = "".join("ab"[number * 7919 >> place % 13 & 1] for place in range(1000))
        assert Txn(harbour, f"{name}-{number}").init() == 0
    alternatives = "|".join(f"(?:a|b)*a(?:a|b){{{count}}}" for count in range(1, 90))
    began = time.monotonic()
    pattern = {"transactional_id_pattern": f"(?:{alternatives})-.*"}
    asked = harbour.send(ApiKey.LIST_TRANSACTIONS, 2, pattern)
    assert time.monotonic() - began < PROMPT_S
    assert not asked.done, "others have their turn"
    harbour.settle()
    assert len(asked.response.transaction_states) > 2


@pytest.mark.parametrize("pattern", ["(", "a" * 4001, "((a{0,99}b{0,99}){0,9}){0,9}"])
def test_patterns_that_are_none_or_too_large_are_refused(pattern: str) -> None:
    answer = Harbour(SETTINGS).ask(ApiKey.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": pattern})
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
