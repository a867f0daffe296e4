"""Who is alive, and what a heartbeat does: sessions, broken connections, fencing and stopping."""

import pytest

from tests.metadata.images import broker, image_of, topic
from tidelog.controller.heartbeat import Heartbeat, HeartbeatAnswer, heartbeat
from tidelog.controller.heartbeats import Heartbeats
from tidelog.controller.leaders import Defaults
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError

FIRST, SECOND = 1001, 1002


def sessions(at: float = 0.5) -> Heartbeats:
    return Heartbeats(9.0, lambda: at)


def test_silent_broker_expires_after_its_session() -> None:
    live = sessions()
    live.heard(1, 6, 10, FIRST, now=100.0)
    live.heard(2, 7, 10, SECOND, now=105.0)
    assert live.next_deadline() == 109.0
    assert live.expired(108.9) == []
    assert live.expired(109.0) == [(1, 6)]
    assert live.expired(114.0) == [(1, 6), (2, 7)], "it stays until it is fenced"
    live.forget(1)
    assert live.expired(114.0) == [(2, 7)]


def test_broken_connection_shortens_the_deadline_and_a_heartbeat_on_a_new_one_restores_it() -> None:
    live = sessions()
    live.heard(1, 6, 10, FIRST, now=100.0)
    live.broke(FIRST, now=101.0)
    assert live.next_deadline() == pytest.approx(101.5)
    live.heard(1, 6, 10, SECOND, now=101.2)
    assert live.next_deadline() == pytest.approx(110.2)
    live.broke(FIRST, now=101.3)
    assert live.next_deadline() == pytest.approx(110.2), "the old connection's end comes late"


def test_broken_connection_never_lengthens_a_deadline() -> None:
    live = sessions()
    live.heard(1, 6, 10, FIRST, now=100.0)
    live.broke(FIRST, now=108.9)
    assert live.next_deadline() == 109.0


@pytest.mark.parametrize(("at", "expected"), [(0.0, 0.3), (0.999999, 0.7)])
def test_deadline_after_a_broken_connection_is_spread(at: float, expected: float) -> None:
    live = sessions(at)
    live.heard(1, 6, 10, FIRST, now=0.0)
    live.broke(FIRST, now=0.0)
    assert live.next_deadline() == pytest.approx(expected, abs=1e-3)


def test_new_controller_counts_brokers_that_are_not_connected_as_broken() -> None:
    live = sessions()
    live.start(image_of(broker(1), broker(2), broker(3, fenced=True)), connected=[2], now=50.0)
    assert live.expired(50.6) == [(1, 6)]
    assert live.expired(59.0) == [(1, 6), (2, 6)], "a broker that is fenced has nothing to lose"


def test_broker_that_fetches_from_a_new_controller_has_a_session_to_report_to_it() -> None:
    live = sessions()
    live.start(image_of(broker(1), broker(2), broker(3, fenced=True)), connected=[], now=50.0)
    live.fetched([2, 3, 7])
    assert live.expired(50.6) == [(1, 6)]
    live.fetched([2])
    assert live.expired(59.0) == [(1, 6), (2, 6)], "it fetches, and doesn't report"
    live.heard(2, 6, 10, FIRST, now=58.0)
    live.broke(FIRST, now=58.0)
    live.fetched([2])
    assert live.expired(58.6) == [(1, 6), (2, 6)], "it was heard, and its connection broke"


def test_fetches_of_an_id_that_a_newcomer_asks_for_say_nothing_of_the_one_before() -> None:
    """All nodes were killed and start again: what fetches from the new controller is the newcomer itself."""
    live = sessions()
    live.start(image_of(broker(1), broker(2)), connected=[], now=50.0)
    live.fetched([1, 2])
    assert live.has_session(1, FIRST, now=50.1)
    assert live.claimed(1)
    live.fetched([1, 2])
    assert live.has_session(1, FIRST, now=52.9), "Apache Kafka's report every two seconds"
    assert not live.has_session(1, FIRST, now=53.0)
    assert live.expired(53.0) == [(1, 6)]


def test_broker_that_reported_keeps_its_session_whoever_asks_for_its_id() -> None:
    live = sessions()
    live.start(image_of(broker(1)), connected=[], now=50.0)
    live.claimed(1)
    live.heard(1, 6, 10, FIRST, now=50.2)
    assert not live.claimed(1)
    assert not live.claimed(7), "nobody has it"
    assert live.has_session(1, SECOND, now=59.1)


def test_session_holds_its_id_until_it_ends() -> None:
    live = sessions()
    assert not live.has_session(1, SECOND, now=0.0)
    live.heard(1, 6, 10, FIRST, now=0.0)
    assert live.has_session(1, SECOND, now=8.9)
    live.broke(FIRST, now=1.0)
    assert not live.has_session(1, SECOND, now=1.6), "a restart after kill -9 waits for half a second"


def test_slowest_active_broker_counts() -> None:
    live = sessions()
    live.heard(1, 6, 10, FIRST, now=0.0)
    live.heard(2, 6, 8, SECOND, now=0.0)
    assert live.lowest_metadata_offset([1, 2]) == 8
    assert live.lowest_metadata_offset([1, 2, 3]) == -1, "unknown isn't caught up"


def decide(image: ClusterImage, given: Heartbeat, lowest: int = 10**6) -> tuple[ClusterImage, HeartbeatAnswer]:
    records, answer = whole(heartbeat(image, given, Defaults(), lowest))
    image = fold(image, records, image.offset + len(records), 1, 0)
    image.check_invariants()
    return image, answer


def test_broker_is_let_in_when_it_has_come_to_its_registration() -> None:
    image = image_of(broker(epoch=6, fenced=True))
    image, answer = decide(image, Heartbeat(1, 6, metadata_offset=5))
    assert answer == HeartbeatAnswer(is_caught_up=False, is_fenced=True, should_shut_down=False)
    image, answer = decide(image, Heartbeat(1, 6, metadata_offset=6, want_fence=True))
    assert answer == HeartbeatAnswer(is_caught_up=True, is_fenced=True, should_shut_down=False)
    image, answer = decide(image, Heartbeat(1, 6, metadata_offset=6))
    assert answer == HeartbeatAnswer(is_caught_up=True, is_fenced=False, should_shut_down=False)
    assert image.brokers[1].active


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (Heartbeat(1, 5, 10), ErrorCode.STALE_BROKER_EPOCH),
        (Heartbeat(1, 5, 10, want_shutdown=True), ErrorCode.STALE_BROKER_EPOCH),
        (Heartbeat(2, 6, 10), ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_old_self_and_strangers_are_refused(given: Heartbeat, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        decide(image_of(broker(epoch=6)), given)
    assert raised.value.code is code


def test_broker_that_stops_hands_over_first_and_goes_when_all_have_seen_it() -> None:
    image = image_of(broker(), broker(2), *topic(partitions=3, replicas=(1, 2)))
    stop = Heartbeat(1, 6, 100, want_shutdown=True)
    image, answer = decide(image, stop)
    assert answer == HeartbeatAnswer(is_caught_up=True, is_fenced=False, should_shut_down=False)
    assert {p.leader for p in image.topics["t"].partitions} == {2}
    image, answer = decide(image, stop, lowest=image.offset - 1)
    assert not answer.should_shut_down, "one broker sends its clients to it still"
    image, answer = decide(image, stop, lowest=image.offset)
    assert answer == HeartbeatAnswer(is_caught_up=True, is_fenced=True, should_shut_down=True)
    assert image.brokers[1].fenced
    _, answer = decide(image, stop)
    assert answer.should_shut_down, "an answer that was lost is given again"


def test_broker_that_leads_nothing_leaves_the_isr_and_may_stop_at_once() -> None:
    image = image_of(broker(), broker(2), *topic(replicas=(2, 1)))
    image, answer = decide(image, Heartbeat(1, 6, 100, want_shutdown=True))
    assert answer == HeartbeatAnswer(is_caught_up=True, is_fenced=True, should_shut_down=True)
    assert (image.brokers[1].fenced, image.brokers[1].in_controlled_shutdown) == (True, False)
    assert image.topics["t"].partitions[0].isr == (2,)


def test_last_broker_may_stop_although_it_leads() -> None:
    image = image_of(broker(), *topic())
    stop = Heartbeat(1, 6, 100, want_shutdown=True)
    image, answer = decide(image, stop)
    image, answer = decide(image, stop)
    assert answer.should_shut_down
    assert image.topics["t"].partitions[0].leader == 1


def test_broker_that_wants_to_be_fenced_leads_nothing() -> None:
    image = image_of(broker(), broker(2), *topic(replicas=(1, 2)))
    image, answer = decide(image, Heartbeat(1, 6, 100, want_fence=True))
    assert answer.is_fenced
    assert image.topics["t"].partitions[0].leader == 2
