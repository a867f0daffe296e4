"""What is made comparable, and what isn't: no broker is needed."""

import pytest

from tests.kafka.same_answers.normalise import Normaliser
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse


@pytest.mark.parametrize("first_id", [0, 4_000])
def test_a_transaction_that_nobody_has_names_no_producer_whatever_ids_there_are(first_id: int) -> None:
    normaliser = Normaliser()
    normaliser.response(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(producer_id=first_id))
    known = TransactionState(transactional_id="known", producer_id=first_id)
    missing = TransactionState(transactional_id="nobody's", error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    described = DescribeTransactionsResponse(transaction_states=[known, missing])
    answer = normaliser.response(ApiKey.DESCRIBE_TRANSACTIONS, described)
    assert [state["producer_id"] for state in answer["transaction_states"]] == ["producer 0", 0]
