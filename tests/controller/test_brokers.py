"""Brokers come, go and come back: what is written about them and their partitions."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import pytest

from tests.metadata.images import DIRECTORY, TOPIC_ID, broker, directory, image_of, partition, topic
from tidelog.controller import brokers, directories
from tidelog.controller.brokers import Registration
from tidelog.controller.leaders import LOOKS_A_STEP, Defaults, change_leaders
from tidelog.env.slices import Steps, whole
from tidelog.metadata.apply import fold
from tidelog.metadata.image import ClusterImage, EndpointImage, PartitionImage
from tidelog.metadata.versions import SUPPORTED
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.cluster import FeatureLevelRecord
from tidelog.wire.records.metadata import Record
from tidelog.wire.records.nodes import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tidelog.wire.records.topics import PartitionChangeRecord, TopicRecord

T = TypeVar("T")
DEFAULTS = Defaults()
INCARNATION = b"this incarnation"


def registration(id: int = 1, *, previous_epoch: int = -1) -> Registration:
    return Registration(
        broker_id=id,
        cluster_id="cluster",
        incarnation_id=INCARNATION,
        endpoints=(EndpointImage("PLAINTEXT", "localhost", 9092),),
        features=dict(SUPPORTED),
        log_dirs=(directory(id),),
        previous_epoch=previous_epoch,
    )


def register(image: ClusterImage, given: Registration) -> tuple[Sequence[Any], int]:
    return whole(brokers.register(image, given, "cluster", DEFAULTS))


def after(image: ClusterImage, records: Sequence[Any]) -> ClusterImage:
    changed = fold(image, records, image.offset + len(records), 1, 0)
    changed.check_invariants()
    return changed


def registered(epoch: int, *, fenced: bool = True) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=INCARNATION,
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092)],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED.items()
        ],
        rack=None,
        fenced=fenced,
        log_dirs=[DIRECTORY],
    )


def test_new_broker_is_registered_fenced_at_the_offset_of_its_registration() -> None:
    image = image_of(offset=11)
    assert register(image, registration()) == ([registered(12)], 12)


def test_second_request_of_the_same_incarnation_keeps_the_epoch() -> None:
    image = after(image_of(offset=11), [registered(12, fenced=False)])
    assert register(image, registration()) == ([registered(12, fenced=False)], 12)


def test_unfenced_broker_is_not_cordoned_and_takes_the_partitions_that_wait() -> None:
    image = image_of(
        broker(fenced=True),
        *topic(partitions=2),
        PartitionChangeRecord(
            partition_id=1, topic_id=TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1]
        ),
    )
    records, _ = whole(brokers.unfence(image, 1, 6, DEFAULTS))
    assert records == [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, cordoned_log_dirs=[]),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, fenced=-1),
        PartitionChangeRecord(
            partition_id=1, topic_id=TOPIC_ID, isr=[1], leader=1, eligible_leader_replicas=[], last_known_elr=[]
        ),
    ]
    image = after(image, records)
    assert whole(brokers.unfence(image, 1, 6, DEFAULTS)) == ([], None)
    assert image.topics["t"].partitions[1].leader_epoch == 2


def test_clean_restart_of_the_only_replica_writes_nothing_about_partitions() -> None:
    image = image_of(broker(epoch=6), *topic(partitions=3))
    stopping, _ = whole(brokers.controlled_shutdown(image, 1, 6, DEFAULTS))
    assert stopping == [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, in_controlled_shutdown=1)]
    image = after(image, stopping)
    records, epoch = register(image, registration(previous_epoch=6))
    assert records == [registered(epoch)]
    image = after(image, records)
    assert [type(record) for record in whole(brokers.unfence(image, 1, epoch, DEFAULTS))[0]] == [
        BrokerRegistrationChangeRecord
    ] * 2


@pytest.mark.parametrize("elr", [0, 1])
@pytest.mark.parametrize("previous_epoch", [-1, 6])
def test_broker_that_comes_back_with_a_wiped_disk_does_not_lead_again(elr: int, previous_epoch: int) -> None:
    image = image_of(
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=elr), broker(epoch=6), *topic()
    )
    empty = replace(registration(previous_epoch=previous_epoch), log_dirs=(b"another, empty 1",))
    records, epoch = register(image, empty)
    image = after(image, records)
    image = after(image, whole(brokers.unfence(image, 1, epoch, DEFAULTS))[0])
    (found,) = image.topics["t"].partitions
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (-1, (), (), ())
    assert found.directories == (b"another, empty 1",), "it is told where to make it again"


def test_wiped_disk_leads_again_where_the_topic_allows_unclean_elections() -> None:
    image = image_of(broker(epoch=6), *topic())
    allowed = Defaults(unclean_leader_election=True)
    records, epoch = whole(
        brokers.register(image, replace(registration(), log_dirs=(b"another, empty 1",)), "cluster", allowed)
    )
    image = after(image, records)
    image = after(image, whole(brokers.unfence(image, 1, epoch, allowed))[0])
    (found,) = image.topics["t"].partitions
    assert (found.leader, found.isr, found.leader_recovery_state) == (1, (1,), 1)


def test_wiped_disk_that_the_operator_gave_up_begins_anew() -> None:
    image = image_of(broker(epoch=6), *topic())
    given = replace(registration(), log_dirs=(b"another, empty 1",), lost_given_up=True)
    image = after(image, register(image, given)[0])
    (found,) = image.topics["t"].partitions
    assert (found.leader, found.isr, found.leader_epoch) == (1, (1,), 1)


def test_one_of_two_directories_is_lost_and_the_other_keeps_what_it_has() -> None:
    both = broker(epoch=6)
    both.log_dirs = [DIRECTORY, b"second directory"]
    image = image_of(both, *topic(partitions=2))
    image = after(
        image,
        [PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, directories=[b"second directory"])],
    )
    records, epoch = register(image, registration(previous_epoch=6))
    image = after(image, records)
    image = after(image, whole(brokers.unfence(image, 1, epoch, DEFAULTS))[0])
    assert [(p.leader, p.isr) for p in image.topics["t"].partitions] == [(1, (1,)), (-1, ())]


def test_directory_that_failed_and_came_back_as_another_one_is_lost() -> None:
    """When it failed it was taken from what the broker has: what comes instead of it is empty all the same."""
    both = broker(epoch=6)
    both.log_dirs = [DIRECTORY, b"second directory"]
    image = image_of(both, *topic(partitions=2))
    image = after(
        image,
        [PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, directories=[b"second directory"])],
    )
    failed = whole(directories.offline(image, image.brokers[1], frozenset([b"second directory"]), DEFAULTS))
    image = after(image, failed)
    replaced = replace(registration(previous_epoch=6), log_dirs=(DIRECTORY, b"an empty one 123"))
    records, epoch = register(image, replaced)
    image = after(image, records)
    image = after(image, whole(brokers.unfence(image, 1, epoch, DEFAULTS))[0])
    assert [(p.leader, p.isr) for p in image.topics["t"].partitions] == [(1, (1,)), (-1, ())]


def test_directory_that_failed_and_is_mended_has_what_it_had() -> None:
    both = broker(epoch=6)
    both.log_dirs = [DIRECTORY, b"second directory"]
    image = image_of(both, *topic(partitions=2))
    image = after(
        image,
        [PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, directories=[b"second directory"])],
    )
    image = after(
        image, whole(directories.offline(image, image.brokers[1], frozenset([b"second directory"]), DEFAULTS))
    )
    mended = replace(registration(previous_epoch=6), log_dirs=(DIRECTORY, b"second directory"))
    records, epoch = register(image, mended)
    image = after(image, records)
    image = after(image, whole(brokers.unfence(image, 1, epoch, DEFAULTS))[0])
    assert [(p.leader, p.isr) for p in image.topics["t"].partitions] == [(1, (1,)), (1, (1,))]


def test_replica_whose_directory_is_not_registered_is_not_elected() -> None:
    image = image_of(broker(), broker(2), broker(3), *topic(replicas=(1, 2, 3)))
    places = [DIRECTORY, b"gone 0123456789a", directory(3)]
    image = after(image, [PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, directories=places)])
    records, _ = whole(brokers.fence(image, 1, 6, DEFAULTS))
    assert records[0] == PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[2, 3], leader=3)


def test_newcomer_waits_while_the_other_incarnation_has_a_session() -> None:
    image = image_of(broker(epoch=6))
    with pytest.raises(KafkaError) as raised:
        whole(brokers.register(image, registration(), "cluster", DEFAULTS, has_session=True))
    assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    records, epoch = whole(brokers.register(image, registration(), "cluster", DEFAULTS, has_session=False))
    again = after(image, records)
    assert whole(brokers.register(again, registration(), "cluster", DEFAULTS, has_session=True))[1] == epoch


@pytest.mark.parametrize("elr", [0, 1])
def test_unclean_restart_of_the_only_replica_opens_a_leader_epoch(elr: int) -> None:
    image = image_of(
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=elr),
        broker(epoch=6),
        *topic(partitions=2),
    )
    records, epoch = register(image, registration(previous_epoch=5))
    assert records == [
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1),
        PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=1),
        registered(epoch),
    ]
    assert epoch == image.offset + 1
    image = after(image, records)
    assert [(p.leader, p.leader_epoch, p.isr) for p in image.topics["t"].partitions] == [(1, 1, (1,))] * 2


def test_unclean_restart_after_kafka_left_the_partition_leaderless() -> None:
    image = image_of(
        broker(epoch=6, fenced=True),
        *topic(),
        PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1]
        ),
    )
    records, epoch = register(image, registration())
    assert records[:-1] == [PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, eligible_leader_replicas=[])]
    image = after(image, records)
    assert whole(brokers.unfence(image, 1, epoch, DEFAULTS))[0][2:] == [
        PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, isr=[1], leader=1, leader_recovery_state=1, last_known_elr=[]
        )
    ]


def three_replicas(min_isr: int = 1) -> ClusterImage:
    return image_of(
        broker(), broker(2), broker(3), TopicRecord(name="t", topic_id=TOPIC_ID), partition(0, replicas=(1, 2, 3))
    )


def fence(image: ClusterImage, id: int, min_isr: int = 1) -> tuple[ClusterImage, Sequence[Any]]:
    records, _ = whole(brokers.fence(image, id, 6, replace(DEFAULTS, min_insync_replicas=min_isr)))
    return after(image, records), records


def test_fenced_leader_is_followed_by_the_next_in_the_isr() -> None:
    image, records = fence(three_replicas(), 1)
    assert records == [
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[2, 3], leader=2),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, fenced=1),
    ]
    assert whole(brokers.fence(image, 1, 6, DEFAULTS)) == ([], None)


def test_below_min_isr_those_that_left_stay_eligible() -> None:
    image = three_replicas()
    image, _ = fence(image, 3, min_isr=2)
    image, records = fence(image, 2, min_isr=2)
    assert records[0] == PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1], eligible_leader_replicas=[2])
    image, records = fence(image, 1, min_isr=2)
    assert records[0] == PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1, 2], last_known_elr=[1]
    )
    records, _ = whole(brokers.unfence(image, 2, 6, replace(DEFAULTS, min_insync_replicas=2)))
    assert records[-1] == PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, isr=[2], leader=2, eligible_leader_replicas=[1], last_known_elr=[]
    )


def test_unclean_shutdown_ends_eligibility() -> None:
    image = three_replicas()
    for id in (3, 2):
        image, _ = fence(image, id, min_isr=2)
    given = replace(registration(2), log_dirs=(directory(2),))
    records, _ = whole(brokers.register(image, given, "cluster", replace(DEFAULTS, min_insync_replicas=2)))
    assert records[0] == PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, eligible_leader_replicas=[])


def test_unclean_election_only_where_it_is_allowed() -> None:
    image = image_of(
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0),
        broker(),
        broker(2),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        partition(0, replicas=(1, 2), isr=(1,)),
    )
    records, _ = whole(brokers.fence(image, 1, 6, DEFAULTS))
    assert records[0] == PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1)
    records, _ = whole(brokers.fence(image, 1, 6, Defaults(unclean_leader_election=True)))
    assert records[0] == PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, isr=[2], leader=2, leader_recovery_state=1
    )


def test_unregistered_broker_is_gone() -> None:
    image = three_replicas()
    records, _ = whole(brokers.unregister(image, 3, DEFAULTS))
    assert records == [
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1, 2]),
        UnregisterBrokerRecord(broker_id=3, broker_epoch=6),
    ]


def test_what_an_unregistered_broker_alone_had_waits_for_it_without_a_leader() -> None:
    image = image_of(broker(epoch=6), *topic())
    records, _ = whole(brokers.unregister(image, 1, DEFAULTS))
    assert records == [
        PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1]
        ),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=6),
    ]
    image = after(image, records)
    for log_dirs, leader, recovery_state in (((b"another, empty 1",), -1, 0), ((DIRECTORY,), 1, 1)):
        records, epoch = register(image, replace(registration(), log_dirs=log_dirs))
        assert records[0] == PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, eligible_leader_replicas=[])
        back = after(image, records)
        back = after(back, whole(brokers.unfence(back, 1, epoch, DEFAULTS))[0])
        (found,) = back.topics["t"].partitions
        assert (found.leader, found.leader_recovery_state) == (leader, recovery_state), "only with the disk that it had"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (replace(registration(), cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (replace(registration(), log_dirs=()), ErrorCode.INVALID_REGISTRATION),
        (replace(registration(), log_dirs=(DIRECTORY, DIRECTORY)), ErrorCode.INVALID_REGISTRATION),
        (replace(registration(), log_dirs=(bytes(15) + b"\x01",)), ErrorCode.INVALID_REGISTRATION),
        (replace(registration(), log_dirs=(directory(2),)), ErrorCode.INVALID_REGISTRATION),
        (replace(registration(), features={}), ErrorCode.INVALID_REGISTRATION),
        (replace(registration(), features={**SUPPORTED, "group.version": (0, 0)}), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_bad_registration_is_refused(given: Registration, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        register(image_of(broker(2)), given)
    assert raised.value.code is code


def test_old_self_is_told_that_its_epoch_is_stale() -> None:
    for image, epoch in ((image_of(broker(epoch=6)), 5), (image_of(), 6)):
        with pytest.raises(KafkaError) as raised:
            brokers.check_epoch(image, 1, epoch)
        assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_change_of_a_partition_is_the_same_for_equal_partitions() -> None:
    many: list[Record] = topic(partitions=50, replicas=(1, 2))
    records, _ = whole(brokers.fence(image_of(broker(), broker(2), *many), 1, 6, DEFAULTS))
    assert records[:-1] == [
        PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, isr=[2], leader=2) for index in range(50)
    ]


def stepped(steps: Steps[T]) -> tuple[T, int]:
    """What comes of them, and how many there were."""
    for taken in count():
        try:
            next(steps)
        except StopIteration as end:
            return end.value, taken
    raise AssertionError("never")


def test_fencing_looks_at_the_broker_s_own_partitions_only() -> None:
    """By steps: one has at most as many looks as `LOOKS_A_STEP`, whether anything comes of them or not."""
    others = topic(partitions=20_000, replicas=(3, 2))
    own = [
        TopicRecord(name="own", topic_id=b"another topic id"),
        *(partition(index, b"another topic id", replicas=(1, 2)) for index in range(100)),
    ]
    image = image_of(broker(), broker(2), broker(3), *others, *own)
    looks = 0
    acceptable = brokers.active_in(image)

    def concerned(one: PartitionImage) -> bool:
        nonlocal looks
        looks += 1
        return 1 in one.isr

    records, taken = stepped(change_leaders(image, DEFAULTS, 1, concerned, acceptable=acceptable, leaving=1))
    assert len(records) == 100
    assert (looks, taken) == (1, 100 // LOOKS_A_STEP + 1), "equal partitions are looked at once"


def test_decision_about_many_partitions_is_made_in_steps() -> None:
    """Whatever it is that a broker does: each step has a bound, so others have their turns between them."""
    image = image_of(broker(), broker(2), *topic(partitions=1000, replicas=(1, 2)))
    for steps in (
        brokers.fence(image, 1, 6, DEFAULTS),
        brokers.controlled_shutdown(image, 1, 6, DEFAULTS),
        brokers.unregister(image, 1, DEFAULTS),
        brokers.register(image, registration(), "cluster", DEFAULTS),
    ):
        assert stepped(steps)[1] > 1000 // LOOKS_A_STEP
