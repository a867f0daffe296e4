"""How the bounds of a plain client relate to each other, and to those of the broker that it asks."""

from tidelog.apis.bounds import HIGH_WATERMARK_WAIT_MS_MAX, MAX_WAIT_MS
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import MESSAGE_BYTES_MAX
from tidelog.log.bounds import WINDOW
from tidelog.rpc import bounds
from tidelog.server.bounds import OPEN_WAIT_S


def test_every_batch_in_flight_is_known_again_when_it_comes_twice() -> None:
    """A connection that breaks has them all sent again: one that the broker forgot would be written twice."""
    assert bounds.BATCHES_IN_FLIGHT_MAX <= WINDOW
    assert bounds.BATCHES_IN_FLIGHT_MAX <= bounds.IN_FLIGHT_MAX, "they share the connection"


def test_a_fetch_brings_any_batch_that_is_allowed_by_default() -> None:
    assert bounds.FETCH_BYTES <= bounds.FETCH_BYTES_MAX
    assert MESSAGE_BYTES_MAX <= bounds.FETCH_BYTES_MAX <= BrokerConfig.parse({}).socket_request_max_bytes


def test_an_answer_comes_before_it_is_given_up() -> None:
    assert bounds.WAIT_MS < bounds.LATE_S * 1000 < bounds.TIMEOUT_MS
    assert bounds.WAIT_MS <= MAX_WAIT_MS
    assert OPEN_WAIT_S * 1000 + HIGH_WATERMARK_WAIT_MS_MAX <= bounds.TIMEOUT_MS, "what a broker waits for at most"


def test_a_peer_answers_with_whatever_a_broker_may_send_and_comes_back_soon() -> None:
    assert bounds.FETCH_BYTES_MAX <= bounds.PEER_ANSWER_BYTES_MAX
    assert bounds.PEER_READ_BYTES <= bounds.PEER_UNSENT_BYTES <= bounds.PEER_ANSWER_BYTES_MAX
    assert bounds.PEER_BACKOFF_S < bounds.PEER_BACKOFF_S_MAX < bounds.PEER_SETUP_S
    longest_ms = 1000 * bounds.PEER_BACKOFF_S_MAX * 1.2
    assert longest_ms < BrokerConfig.parse({}).controller_quorum_fetch_timeout_ms, "a voter that is back is soon asked"
