"""What a leader takes from its followers' fetches and what it answers: the log's end, the ISR, the high watermark."""

from typing import Any

import pytest

from tests.apis.followers import FollowingBroker, change, register, submit
from tests.apis.sim_broker import Asked, SimBroker, batch, produce_fields
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.records.metadata import BrokerRegistrationChangeRecord


@pytest.fixture
def broker() -> SimBroker:
    made = SimBroker()
    made.make_topic("tide", partitions=3)
    for id in (2, 3):
        register(made, id)
    return made


def produce(broker: SimBroker, *values: bytes, partition: int = 0, acks: int = -1) -> Asked:
    asked = broker.send(
        ApiKey.PRODUCE, 9, produce_fields("tide", batch(*values), partition=partition, acks=acks, timeout_ms=60_000)
    )
    broker.settle()
    return asked


def replicate(broker: SimBroker, *isr: int, index: int = 0, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
    change(broker, index=index, replicas=list(replicas), isr=list(isr or replicas))


def fence(broker: SimBroker, id: int, how: int = 1) -> None:
    """-1: it is back."""
    submit(broker, BrokerRegistrationChangeRecord(broker_id=id, broker_epoch=100 * id, fenced=how))


def code(asked: Asked) -> int:
    return asked.response.responses[0].partition_responses[0].error_code


def test_a_record_is_acknowledged_once_all_in_sync_replicas_have_it(broker: SimBroker) -> None:
    replicate(broker)
    two, three = FollowingBroker(broker, 2), FollowingBroker(broker, 3)
    for follower in (two, three):
        assert follower.fetch(follower.part(0, 0)) == [(0, 0, 0, [])]
    waits = produce(broker)
    partition = broker.partition("tide")
    assert two.fetch() == [(0, 0, 0, [0])], "beyond the high watermark"
    assert three.fetch() == [(0, 0, 0, [0])]
    two.fetch(two.part(0, 1))
    assert (waits.done, partition.high_watermark) == (False, 0)
    assert three.fetch(three.part(0, 1)) == [(0, 0, 1, [])]
    assert (code(waits), partition.high_watermark) == (0, 1)
    broker.check()


def test_what_is_not_durable_here_yet_goes_to_followers_and_is_not_committed(broker: SimBroker) -> None:
    replicate(broker, 1, 2, replicas=(1, 2))
    follower = FollowingBroker(broker, 2)
    broker.hold_syncs()
    waits = produce(broker)
    assert follower.fetch(follower.part(0, 0)) == [(0, 0, 0, [0])]
    assert follower.fetch(follower.part(0, 1)) == []
    assert (waits.done, broker.partition("tide").high_watermark) == (False, 0)
    broker.let_sync()
    assert code(waits) == 0
    assert follower.fetch() == [(0, 0, 1, [])]


def test_a_follower_that_has_caught_up_joins_the_isr_and_counts_from_then_on(broker: SimBroker) -> None:
    replicate(broker, 1, 2)
    two, three = FollowingBroker(broker, 2), FollowingBroker(broker, 3)
    waits = produce(broker)
    two.fetch(two.part(0, 1))
    assert code(waits) == 0
    partition = broker.partition("tide")
    three.fetch(three.part(0, 0))
    assert partition.isr == (1, 2)
    three.fetch(three.part(0, 1))
    broker.pass_time(0.1)
    assert partition.isr == partition.image.isr == (1, 2, 3)
    waits = produce(broker)
    two.fetch(two.part(0, 2))
    assert not waits.done
    three.fetch(three.part(0, 2))
    assert code(waits) == 0
    broker.check()


@pytest.mark.parametrize("how", ["stale", "fenced"])
def test_only_the_present_registration_of_a_live_broker_joins(broker: SimBroker, how: str) -> None:
    replicate(broker, 1, 2)
    three = FollowingBroker(broker, 3, epoch=299 if how == "stale" else None)
    if how == "fenced":
        fence(broker, 3)
    three.fetch(three.part(0, 0))
    broker.pass_time(1.0)
    assert broker.partition("tide").isr == (1, 2)
    if how == "fenced":
        fence(broker, 3, -1)
        broker.pass_time(0.1)
        assert broker.partition("tide").isr == (1, 2, 3), "without another fetch"


@pytest.mark.parametrize("version", [13, 14, 15])
def test_a_follower_that_tells_no_broker_epoch_joins(broker: SimBroker, version: int) -> None:
    replicate(broker, 1, 2)
    two, three = FollowingBroker(broker, 2), FollowingBroker(broker, 3, version=version, epoch=-1)
    three.fetch(three.part(0, 0))
    broker.pass_time(0.1)
    assert broker.partition("tide").isr == (1, 2, 3)
    fence(broker, 3)
    replicate(broker, 1, 2)
    register(broker, 3, epoch=301)
    broker.pass_time(0.1)
    assert broker.partition("tide").isr == (1, 2), "what it had before doesn't count"
    assert three.send(wait_ms=0).response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    three.session_id = three.session_epoch = 0
    three.fetch(three.part(0, 0))
    broker.pass_time(0.1)
    assert broker.partition("tide").isr == (1, 2, 3)
    waits = produce(broker)
    two.fetch(two.part(0, 1))
    assert not waits.done
    three.fetch(three.part(0, 1))
    assert code(waits) == 0
    broker.check()


def test_a_follower_that_falls_behind_leaves_the_isr(broker: SimBroker) -> None:
    broker = SimBroker({"replica.lag.time.max.ms": "2000", "broker.session.timeout.ms": "60000"})
    broker.make_topic("tide")
    for id in (2, 3):
        register(broker, id)
    replicate(broker)
    two, three = FollowingBroker(broker, 2), FollowingBroker(broker, 3)
    for follower in (two, three):
        follower.fetch(follower.part(0, 0))
    broker.pass_time(5.0)
    assert broker.partition("tide").isr == (1, 2, 3), "they have all there is"
    two.fetch()
    three.fetch()
    waits = produce(broker)
    broker.pass_time(1.9)
    two.fetch(two.part(0, 1))
    assert not waits.done
    broker.pass_time(1.5)
    assert broker.partition("tide").isr == (1, 2)
    assert code(waits) == 0


def test_below_min_isr_nothing_more_is_committed(broker: SimBroker) -> None:
    configs = [{"name": "min.insync.replicas", "config_operation": 0, "value": "2"}]
    resource = {"resource_type": 2, "resource_name": "tide", "configs": configs}
    broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    replicate(broker)
    two = FollowingBroker(broker, 2)
    two.fetch(two.part(0, 0))
    waits = produce(broker)
    fence(broker, 2)
    change(broker, isr=[1])
    partition = broker.partition("tide")
    assert (waits.done, partition.log.durable_end, partition.high_watermark) == (False, 1, 0)
    assert code(produce(broker)) == ErrorCode.NOT_ENOUGH_REPLICAS
    two.fetch(two.part(0, 1))
    assert (waits.done, partition.high_watermark) == (False, 0)
    fence(broker, 2, -1)
    broker.pass_time(0.1)
    assert partition.isr == (1, 2)
    assert (code(waits), partition.high_watermark) == (0, 1)


def test_a_leader_that_is_replaced_tells_those_who_wait_and_its_followers(broker: SimBroker) -> None:
    replicate(broker)
    two = FollowingBroker(broker, 2)
    two.fetch(two.part(0, 0))
    waits = produce(broker)
    two.fetch()
    parked = two.send(two.part(0, 1))
    assert not parked.done
    change(broker, leader=2)
    assert code(waits) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert two.take(parked) == [(0, ErrorCode.FENCED_LEADER_EPOCH, -1, [])]
    partition = parked.response.responses[0].partitions[0]
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 1)
    assert [node.node_id for node in parked.response.node_endpoints] == [1, 2, 3]


def test_who_is_no_replica_is_refused_and_comes_again_where_it_knows_better(broker: SimBroker) -> None:
    replicate(broker, 1, 2, replicas=(1, 2))
    three = FollowingBroker(broker, 3)
    assert three.fetch(three.part(0, 0)) == [(0, ErrorCode.UNKNOWN_LEADER_EPOCH, -1, [])]
    assert three.fetch(three.part(0, 0, current_leader_epoch=-1)) == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, [])]
    change(broker, replicas=[1, 2, 3])
    assert three.fetch(three.part(0, 0)) == [(0, 0, 0, [])]


def test_an_offset_out_of_range_says_nothing_of_the_follower(broker: SimBroker) -> None:
    replicate(broker, 1, 2, replicas=(1, 2))
    two = FollowingBroker(broker, 2)
    produce(broker)
    assert two.fetch(two.part(0, 2)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, [])]
    assert broker.partition("tide").high_watermark == 0


def test_a_follower_whose_log_parts_from_ours_is_told_where(broker: SimBroker) -> None:
    produce(broker)
    change(broker, leader=1)
    replicate(broker, 1, 2, replicas=(1, 2))
    partition = broker.partition("tide")
    produce(broker)
    assert (partition.leader_epoch, partition.log.log_end, partition.high_watermark) == (1, 2, 1)
    two = FollowingBroker(broker, 2)
    response = two.send(two.part(0, 2, last_fetched_epoch=0), wait_ms=500).response
    told = response.responses[0].partitions[0]
    assert (told.error_code, told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (0, 0, 1)
    assert partition.high_watermark == 1, "what it has at 1 isn't ours"
    two.session_id, two.session_epoch = response.session_id, 1
    assert two.fetch(two.part(0, 1, last_fetched_epoch=0)) == [(0, 0, 1, [1])]
    assert two.fetch(two.part(0, 2, last_fetched_epoch=1)) == [(0, 0, 2, [])]


# -- sessions


def test_a_fetch_waits_for_any_partition_of_its_session(broker: SimBroker) -> None:
    for index in range(3):
        replicate(broker, 1, 2, index=index, replicas=(1, 2))
    two = FollowingBroker(broker, 2)
    assert two.fetch(*(two.part(index, 0) for index in range(3))) == [(index, 0, 0, []) for index in range(3)]
    parked = two.send()
    assert not parked.done
    produce(broker, partition=1, acks=1)
    assert two.take(parked) == [(1, 0, 0, [0])]
    parked = two.send()
    produce(broker, partition=2, acks=1)
    assert two.take(parked) == [(2, 0, 0, [0])]
    assert two.fetch() == [], "it is busy with both of them"
    assert two.fetch(two.part(1, 1)) == [(1, 0, 1, [])]
    produce(broker, partition=1, acks=1)
    produce(broker, partition=2, acks=1)
    assert two.fetch() == [(1, 0, 1, [1])]
    assert two.fetch(two.part(2, 1)) == [(2, 0, 1, [1])]


def test_a_parked_fetch_ends_with_its_time_and_tells_nothing(broker: SimBroker) -> None:
    replicate(broker, 1, 2, replicas=(1, 2))
    two = FollowingBroker(broker, 2)
    two.fetch(two.part(0, 0))
    parked = two.send(wait_ms=500)
    broker.pass_time(0.49)
    assert not parked.done
    broker.pass_time(0.02)
    assert two.take(parked) == []


def test_who_tells_the_high_watermark_that_it_knows_hears_of_a_higher_one_at_once(broker: SimBroker) -> None:
    replicate(broker)
    two, three = FollowingBroker(broker, 2), FollowingBroker(broker, 3)
    for follower in (two, three):
        follower.fetch(follower.part(0, 0, high_watermark=0))
    produce(broker)
    assert two.fetch() == three.fetch() == [(0, 0, 0, [0])]
    parked = two.send(two.part(0, 1, high_watermark=0))
    assert not parked.done
    assert three.fetch(three.part(0, 1)) == [(0, 0, 1, [])]
    broker.settle()
    assert two.take(parked) == [(0, 0, 1, [])]
    assert not two.send(two.part(0, 1, high_watermark=0)).done, "it was told"


def test_who_does_not_tell_hears_of_it_with_the_next_answer(broker: SimBroker) -> None:
    replicate(broker)
    two, three = FollowingBroker(broker, 2, version=17), FollowingBroker(broker, 3, version=17)
    for follower in (two, three):
        follower.fetch(follower.part(0, 0))
    produce(broker)
    assert two.fetch() == three.fetch() == [(0, 0, 0, [0])]
    parked = two.send(two.part(0, 1))
    three.fetch(three.part(0, 1))
    broker.settle()
    assert not parked.done
    broker.pass_time(0.5)
    assert two.take(parked) == [(0, 0, 1, [])]


def test_a_deleted_topic_is_told_and_keeps_no_other_from_waiting(broker: SimBroker) -> None:
    replicate(broker, 1, 2, replicas=(1, 2))
    two = FollowingBroker(broker, 2)
    two.fetch(two.part(0, 0))
    parked = two.send()
    broker.delete_topic("tide")
    broker.settle()
    assert [(index, code) for index, code, _, _ in two.take(parked)] == [(0, ErrorCode.UNKNOWN_TOPIC_ID)]
    parked = two.send()
    assert not parked.done, "it was told"
    broker.pass_time(0.6)
    assert [code for _, code, _, _ in two.take(parked)] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert two.fetch(forget=(0,)) == []


def test_a_session_is_one_registrations(broker: SimBroker) -> None:
    replicate(broker, 1, 2, replicas=(1, 2))
    two = FollowingBroker(broker, 2)
    two.fetch(two.part(0, 0))

    def error(**more: Any) -> int:
        return two.send(wait_ms=0, **more).response.error_code

    assert error(session_epoch=7) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert error(session_id=two.session_id + 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert error(replica_state={"replica_id": 3, "replica_epoch": 300}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    two.epoch += 1
    assert error() == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    two.epoch -= 1
    assert error() == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "that was its end"


def test_a_replica_that_went_and_came_back_is_known_by_what_it_asked_for(broker: SimBroker) -> None:
    """Its session may never have heard that it was none for a while."""
    replicate(broker)
    two = FollowingBroker(broker, 2)
    two.fetch(two.part(0, 0))
    parked = two.send()
    change(broker, replicas=[1, 3], isr=[1, 3])
    change(broker, replicas=[1, 3, 2])
    broker.pass_time(0.6)
    assert parked.done
    two.take(parked)
    two.fetch()
    broker.pass_time(0.1)
    assert broker.partition("tide").isr == (1, 3, 2)


def test_sessions_are_bounded(broker: SimBroker) -> None:
    replicate(broker, 1, 2, replicas=(1, 2))
    sessions = broker.services.replica_sessions
    for _ in range(20):
        two = FollowingBroker(broker, 2)
        two.fetch(two.part(0, 0))
    assert len(sessions) == 8
    partition = broker.partition("tide")
    produce(broker)
    assert two.fetch() == [(0, 0, 0, [0])]
    nobody = FollowingBroker(broker, 9, epoch=1)
    nobody.fetch(nobody.part(0, 0))
    assert (nobody.session_id, len(sessions)) == (0, 8)
    assert partition.leading is not None


def test_what_does_not_fit_comes_with_the_next_answers(broker: SimBroker) -> None:
    for index in range(3):
        replicate(broker, 1, 2, index=index, replicas=(1, 2))
        produce(broker, partition=index, acks=1)
    two = FollowingBroker(broker, 2)
    size = len(batch())
    offsets = dict.fromkeys(range(3), 0)
    seen: list[int] = []
    parts = [two.part(index, 0) for index in range(3)]
    for _ in range(3):
        for index, _, _, found in two.fetch(*parts, max_bytes=size):
            if found:
                seen.append(index)
                offsets[index] += 1
                parts = [two.part(index, offsets[index])]
    assert seen == [0, 1, 2]


def test_records_that_a_follower_made_nothing_of_are_sent_again(broker: SimBroker) -> None:
    replicate(broker, 1, 2, replicas=(1, 2))
    two = FollowingBroker(broker, 2)
    two.fetch(two.part(0, 0))
    produce(broker, acks=1)
    assert two.fetch() == [(0, 0, 0, [0])]
    told = [two.fetch() for _ in range(20)]
    assert [found for found in told if found] == [[(0, 0, 0, [0])]]
