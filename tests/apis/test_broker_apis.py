"""Brokers and their controller: registration, heartbeats, broken connections, producer ids, leaving for good."""

import pytest

from tests.apis.controllers import LOCAL, ControllerNode
from tests.metadata.images import partition, topic
from tidelog.apis import allocate_producer_ids, controller_registration, unregister_broker
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.wire.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener
from tidelog.wire.messages.unregister_broker import UnregisterBrokerRequest
from tidelog.wire.records.topics import TopicRecord

OTHER_TOPIC = b"another topic 00"


@pytest.fixture
def cluster() -> ControllerNode:
    return ControllerNode()


def test_broker_is_registered_fenced_and_let_in_by_its_heartbeat(cluster: ControllerNode) -> None:
    answer = cluster.register(2, rack="r")
    assert (answer.error_code, answer.broker_epoch) == (ErrorCode.NONE, cluster.image.brokers[2].epoch)
    known = cluster.image.brokers[2]
    assert (known.fenced, known.rack, known.endpoints[0].host) == (True, "r", "host-2")
    behind = cluster.beat(2, current_metadata_offset=known.epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced, behind.should_shut_down) == (False, True, False)
    let_in = cluster.beat(2)
    assert (let_in.is_caught_up, let_in.is_fenced, let_in.should_shut_down) == (True, False, False)
    assert cluster.image.brokers[2].active


def test_same_incarnation_keeps_its_epoch_and_another_one_waits_for_the_session_to_end(cluster: ControllerNode) -> None:
    cluster.join(2)
    epoch = cluster.epochs[2]
    assert cluster.register(2).broker_epoch == epoch
    assert not cluster.image.brokers[2].fenced, "an answer that was lost changes nothing"
    refused = cluster.register(2, b"second", connection=8)
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.controller.connection_broken(2)
    cluster.world.run(0.8)
    assert cluster.image.brokers[2].fenced, "its process is gone"
    assert cluster.register(2, b"second", connection=8).broker_epoch > epoch
    assert cluster.beat(2, broker_epoch=epoch).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_old_incarnation_neither_keeps_a_broker_alive_nor_fences_it(cluster: ControllerNode) -> None:
    cluster.join(2)
    old = cluster.epochs[2]
    cluster.controller.connection_broken(2)
    cluster.world.run(0.8)
    cluster.register(2, b"second", connection=8)
    cluster.beat(2, connection=8)
    assert cluster.beat(2, broker_epoch=old, want_fence=True).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.beat(2, broker_epoch=old, want_shut_down=True).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not cluster.image.brokers[2].fenced
    for _ in range(10):
        cluster.world.run(1.0)
        assert cluster.beat(2, broker_epoch=old).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.image.brokers[2].fenced, "only its old self was heard"


def test_silent_broker_is_fenced_after_its_session_and_others_lead(cluster: ControllerNode) -> None:
    cluster.join(2, 3)
    cluster.node.write(*topic(partitions=3, replicas=(2, 3)))
    for _ in range(4):
        cluster.world.run(2.0)
        cluster.beat(3)
    assert not cluster.image.brokers[2].fenced
    cluster.world.run(1.5)
    assert cluster.image.brokers[2].fenced
    assert not cluster.image.brokers[3].fenced
    assert {p.leader for p in cluster.image.topics["t"].partitions} == {3}


def test_heartbeat_on_a_new_connection_restores_the_session(cluster: ControllerNode) -> None:
    cluster.join(2)
    cluster.controller.connection_broken(2)
    cluster.world.run(0.2)
    cluster.beat(2, connection=8)
    cluster.controller.connection_broken(2)
    cluster.world.run(8.0)
    assert not cluster.image.brokers[2].fenced


def test_broker_that_stops_hands_over_and_may_come_back_at_once(cluster: ControllerNode) -> None:
    cluster.join(2, 3)
    cluster.node.write(*topic(partitions=2, replicas=(2, 3)))
    assert not cluster.beat(2, want_shut_down=True).should_shut_down
    assert {p.leader for p in cluster.image.topics["t"].partitions} == {3}
    assert not cluster.beat(2, want_shut_down=True).should_shut_down, "the other may send clients there still"
    moved = cluster.image.offset
    cluster.node.write(TopicRecord(name="u", topic_id=OTHER_TOPIC), partition(0, OTHER_TOPIC, replicas=(3,)))
    cluster.beat(3, current_metadata_offset=moved)
    last = cluster.beat(2, want_shut_down=True)
    assert (last.should_shut_down, last.is_fenced) == (True, True), "whatever else is decided meanwhile"
    assert cluster.register(2, b"second", connection=8).error_code == ErrorCode.NONE


def test_broker_of_the_controllers_own_process_is_never_silent(cluster: ControllerNode) -> None:
    cluster.register(1, connection=LOCAL)
    assert not cluster.beat(1, connection=LOCAL).is_fenced
    cluster.world.run(60.0)
    assert not cluster.image.brokers[1].fenced
    refused = cluster.register(1, b"second", connection=8)
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION, "another process with the same id"
    assert cluster.register(1, b"second", connection=LOCAL).error_code == ErrorCode.NONE


def test_directory_that_went_offline_costs_its_replicas_their_leadership(cluster: ControllerNode) -> None:
    first, second = b"directory      2", b"the second one 2"
    cluster.register(2, log_dirs=[first, second])
    cluster.beat(2)
    cluster.join(3)
    cluster.node.write(*topic(partitions=1, replicas=(2, 3)))
    there = partition(0, OTHER_TOPIC, replicas=(2, 3))
    there.directories[0] = second
    cluster.node.write(TopicRecord(name="u", topic_id=OTHER_TOPIC), there)
    answer = cluster.beat(2, offline_log_dirs=[second])
    assert (answer.error_code, answer.is_fenced) == (ErrorCode.NONE, False)
    assert cluster.image.brokers[2].log_dirs == (first,)
    left = cluster.image.topics["u"].partitions[0]
    assert (left.leader, left.isr) == (3, (3,))
    assert cluster.image.topics["t"].partitions[0].leader == 2
    before = cluster.image.offset
    cluster.beat(2, offline_log_dirs=[second])
    assert cluster.image.offset == before, "it is said again with each heartbeat, and written once"


def test_broker_without_any_directory_left_is_fenced_and_stays_so(cluster: ControllerNode) -> None:
    cluster.join(2, 3)
    cluster.node.write(*topic(replicas=(2, 3)))
    gone = {"offline_log_dirs": [b"directory      2"]}
    assert cluster.beat(2, **gone).is_fenced
    assert cluster.beat(2, **gone).is_fenced
    assert cluster.image.topics["t"].partitions[0].leader == 3


def test_cordoned_directories_are_written_once(cluster: ControllerNode) -> None:
    cluster.join(2)
    assert cluster.image.brokers[2].cordoned_log_dirs == ()
    cordoned = {"cordoned_log_dirs": [b"directory      2", b"of another one  "]}
    cluster.beat(2, **cordoned)
    assert cluster.image.brokers[2].cordoned_log_dirs == (b"directory      2",)
    before = cluster.image.offset
    cluster.beat(2, **cordoned)
    cluster.beat(2)
    assert cluster.image.offset == before


def test_each_block_of_producer_ids_is_given_once(cluster: ControllerNode) -> None:
    cluster.join(2, 3)
    blocks = [
        cluster.ask(
            allocate_producer_ids.handle, AllocateProducerIdsRequest(broker_id=id, broker_epoch=cluster.epochs[id])
        )
        for id in (2, 3, 2)
    ]
    assert [(b.error_code, b.producer_id_start, b.producer_id_len) for b in blocks] == [
        (0, 0, 1000),
        (0, 1000, 1000),
        (0, 2000, 1000),
    ]
    stale = cluster.ask(allocate_producer_ids.handle, AllocateProducerIdsRequest(broker_id=2, broker_epoch=0))
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_controller_that_does_not_lead_names_its_endpoints(cluster: ControllerNode) -> None:
    request = ControllerRegistrationRequest(
        controller_id=7,
        incarnation_id=b"i" * 16,
        listeners=[Listener(name="CONTROLLER", host="seven", port=9093)],
        features=[Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
    )
    assert cluster.ask(controller_registration.handle, request).error_code == ErrorCode.NONE
    known = cluster.image.controllers[7]
    assert (known.endpoints[0].host, known.features) == ("seven", {"metadata.version": (7, 30)})
    offset = cluster.image.offset
    assert cluster.ask(controller_registration.handle, request).error_code == ErrorCode.NONE
    assert cluster.image.offset == offset, "it is known so already"
    request.incarnation_id = b"j" * 16
    assert cluster.ask(controller_registration.handle, request).error_code == ErrorCode.NONE
    assert cluster.image.controllers[7].incarnation_id == b"j" * 16


def test_broker_that_is_unregistered_is_forgotten(cluster: ControllerNode) -> None:
    cluster.join(2, 3)
    cluster.node.write(*topic(replicas=(2, 3)))
    assert cluster.ask(unregister_broker.handle, UnregisterBrokerRequest(broker_id=2)).error_code == ErrorCode.NONE
    assert sorted(cluster.image.brokers) == [3]
    assert cluster.image.topics["t"].partitions[0].leader == 3
    again = cluster.ask(unregister_broker.handle, UnregisterBrokerRequest(broker_id=2))
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert cluster.beat(2).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.register(2, b"second", connection=8).error_code == ErrorCode.NONE


def test_only_the_active_controller_answers(cluster: ControllerNode) -> None:
    cluster.join(2)
    cluster.controller.stop_leading(cluster.node.raft.epoch)
    assert cluster.register(3).error_code == ErrorCode.NOT_CONTROLLER
    assert cluster.beat(2).error_code == ErrorCode.NOT_CONTROLLER
    for handle, request in (
        (allocate_producer_ids.handle, AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epochs[2])),
        (controller_registration.handle, ControllerRegistrationRequest(controller_id=7)),
        (unregister_broker.handle, UnregisterBrokerRequest(broker_id=2)),
    ):
        assert cluster.ask(handle, request).error_code == ErrorCode.NOT_CONTROLLER
    cluster.world.run(30.0)
    assert not cluster.image.brokers[2].fenced, "who doesn't lead fences nobody"
