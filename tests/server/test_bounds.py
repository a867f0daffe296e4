"""How the bounds of the server relate, to each other and to those of other areas."""

from tidelog.apis.bounds import HIGH_WATERMARK_WAIT_MS_MAX, MAX_WAIT_MS
from tidelog.config.broker import BrokerConfig
from tidelog.env.bounds import LONG_TURN_S, TURN_S
from tidelog.server import bounds

CLIENT_TIMEOUT_S = 30.0  # request.timeout.ms of Kafka's clients
LINUX_IOV_MAX = 1024


def test_every_frame_that_gets_no_buffer_of_its_own_fits_the_shared_one() -> None:
    assert bounds.LARGE_FRAME_BYTES < bounds.SHARED_BYTES
    assert bounds.PEEK_BYTES < bounds.LARGE_FRAME_BYTES, "a peek is for less than it could receive without"
    assert bounds.PEEK_AFTER_BYTES > bounds.SHARED_BYTES, "what fits the shared buffer is cheaper received there"


def test_buffers_can_be_pooled() -> None:
    """The pool knows buffers by their size, which is a power of two, and all that it may keep must hold the largest."""
    sizes = (bounds.SHARED_BYTES, bounds.FIRST_BYTES, bounds.MAPPED_BYTES_MIN, bounds.POOLED_BUFFER_BYTES_MAX)
    assert all(size & (size - 1) == 0 for size in sizes)
    assert bounds.FIRST_BYTES < bounds.MAPPED_BYTES_MIN <= bounds.POOLED_BUFFER_BYTES_MAX <= bounds.POOLED_BYTES_MAX


def test_memory_that_is_kept_is_part_of_what_may_be_lent() -> None:
    """Or many connections could keep more than `queued.max.request.bytes` allows before anyone has to wait."""
    config = BrokerConfig.parse({})
    assert config.queued_max_request_bytes > bounds.KEPT_BYTES_MAX
    assert config.queued_max_request_bytes > bounds.POOLED_BYTES_MAX
    assert config.socket_request_max_bytes <= config.queued_max_request_bytes


def test_a_large_request_is_read_in_steps() -> None:
    """What takes hundreds of megabytes also takes long: it must never be read in one go."""
    assert bounds.STEPS_FROM_BYTES <= bounds.LARGE_BYTES
    assert bounds.LARGE_AT_ONCE < bounds.OTHERS_AT_ONCE


def test_a_request_that_trickles_in_is_given_up_before_its_connection_is_idle() -> None:
    """It holds memory, an idle connection doesn't; and the sweep looks often enough to keep the deadline."""
    assert 10 * bounds.SWEEP_S <= bounds.REQUEST_DEADLINE_S
    assert BrokerConfig.parse({}).connections_max_idle_ms / 1000 > bounds.REQUEST_DEADLINE_S


def test_clients_are_answered_before_they_give_up() -> None:
    """A client that gave up sends again, beside the request that is still under way. A request may wait for logs to be
    opened, and then for a sync. A parked fetch is what its client asked for, but its connection mustn't become idle."""
    assert bounds.OPEN_WAIT_S + HIGH_WATERMARK_WAIT_MS_MAX / 1000 <= CLIENT_TIMEOUT_S
    assert BrokerConfig.parse({}).connections_max_idle_ms > MAX_WAIT_MS


def test_handling_leaves_room_in_a_turn_of_the_loop() -> None:
    """A turn ends after TURN_S of callbacks or sockets: requests may take a part of that, and make no long turn."""
    assert bounds.HANDLING_S_A_TURN < TURN_S < LONG_TURN_S
    assert bounds.LIGHT_S < bounds.UNKNOWN_S <= 2 * bounds.LIGHT_S, "one light request must show a newcomer to be light"
    assert bounds.UNKNOWN_S < bounds.HANDLING_S_A_TURN


def test_answers_are_gathered_below_what_a_call_and_a_turn_take() -> None:
    assert bounds.LARGE_ANSWER_BYTES <= bounds.GATHERED_BYTES <= bounds.BYTES_A_TURN
    assert bounds.ANSWERS_A_TURN <= bounds.IOV_MAX <= LINUX_IOV_MAX, "or the kernel refuses the call"
