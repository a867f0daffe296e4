"""Lives of a few partitions: whatever is decided about them in whatever order, what must hold holds after each change.

Beside the image stands a model of the data: which replicas hold all that may have been committed. Whoever leads is one
of them, or the partition says that it was elected uncleanly.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from tests.metadata.images import image_of
from tidelog.controller import brokers, directories
from tidelog.controller.balance import elect_preferred, elect_uncleanly
from tidelog.controller.elections import elect_leaders
from tidelog.controller.in_sync import alter_partition
from tidelog.controller.leaders import Defaults, effective_config, elr_enabled
from tidelog.controller.partition_change import RECOVERING
from tidelog.controller.reassignments import alter_reassignments
from tidelog.controller.replica_directories import assign_replicas
from tidelog.env.slices import whole
from tidelog.metadata.apply import fold
from tidelog.metadata.image import NO_LEADER, EndpointImage, PartitionImage, TopicImage
from tidelog.metadata.versions import SUPPORTED
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
)
from tidelog.wire.messages.assign_replicas_to_dirs import PartitionData as AssignedPartition
from tidelog.wire.messages.assign_replicas_to_dirs import TopicData as AssignedTopic
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.records.cluster import ConfigRecord, FeatureLevelRecord
from tidelog.wire.records.metadata import ClearElrRecord, PartitionChangeRecord
from tidelog.wire.records.topics import PartitionRecord, TopicRecord

BROKERS = range(1, 6)
PARTITIONS = 4
STEPS = 120
TOPIC_ID = b"the topic's id 0"
DEFAULTS = Defaults(min_insync_replicas=2)


class Life:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        elr = self.random.random() < 0.8
        self.image = image_of(
            FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=int(elr)),
        )
        self.incarnations = 0
        self.directories: dict[int, list[bytes]] = {id: [self._new_id(), self._new_id()] for id in BROKERS}
        self.clean: dict[int, int] = {}
        """Brokers that stopped in order, with the epoch under which they did."""
        self.holders: list[set[int]] = []
        for id in BROKERS:
            self._register(id)
            self._apply(whole(brokers.unfence(self.image, id, self._epoch(id), DEFAULTS))[0])
        self._make_topic()
        self.actions: list[Callable[[], None]] = [
            self.fence, self.fence, self.unfence, self.unfence, self.unfence, self.stop, self.come_back,
            self.come_back, self.lose_directory, self.alter, self.alter, self.alter, self.alter, self.reassign,
            self.cancel, self.elect, self.balance, self.assign, self.configure, self.unregister,
        ]  # fmt: skip

    def _new_id(self) -> bytes:
        return self.random.randbytes(16)

    @property
    def topic(self) -> TopicImage:
        return self.image.topics["t"]

    def _epoch(self, id: int) -> int:
        return self.image.brokers[id].epoch

    def _make_topic(self) -> None:
        records: list[Any] = [TopicRecord(name="t", topic_id=TOPIC_ID)]
        for index in range(PARTITIONS):
            replicas = self.random.sample(list(BROKERS), 3 if index else self.random.randint(1, 3))
            records.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[self.random.choice(self.directories[id]) for id in replicas],
                )
            )
            self.holders.append(set(replicas))
        self._apply(records)

    # ---- what happens ----

    def _some_broker(self, **wanted: bool) -> int | None:
        fitting = [b.id for b in self.image.brokers.values() if all(getattr(b, k) == v for k, v in wanted.items())]
        return self.random.choice(fitting) if fitting else None

    def fence(self) -> None:
        id = self._some_broker(fenced=False)
        if id is not None:
            self._apply(whole(brokers.fence(self.image, id, self._epoch(id), DEFAULTS))[0])

    def unfence(self) -> None:
        id = self._some_broker(fenced=True, in_controlled_shutdown=False)
        if id is not None:
            self._apply(whole(brokers.unfence(self.image, id, self._epoch(id), DEFAULTS))[0])

    def stop(self) -> None:
        """In order: it hands over, and remembers its epoch."""
        id = self._some_broker(fenced=False)
        if id is not None:
            epoch = self._epoch(id)
            self._apply(whole(brokers.controlled_shutdown(self.image, id, epoch, DEFAULTS))[0])
            if self.random.random() < 0.8:
                self.clean[id] = epoch

    def come_back(self) -> None:
        """A new incarnation: after a clean stop, or a crash, and sometimes with another disk."""
        id = self.random.choice(list(BROKERS))
        lost = self.random.random() < 0.15
        if lost:
            self.directories[id] = [*self.directories[id][1:], self._new_id()]
        self._register(id)

    def _register(self, id: int) -> None:
        known = self.image.brokers.get(id)
        previous = self.clean.pop(id, -1)
        self.incarnations += 1
        registration = brokers.Registration(
            broker_id=id,
            cluster_id="cluster",
            incarnation_id=self.incarnations.to_bytes(16),
            endpoints=(EndpointImage("PLAINTEXT", "localhost", 9092),),
            features=dict(SUPPORTED),
            log_dirs=tuple(self.directories[id]),
            previous_epoch=previous,
        )
        if (known is None or previous != known.epoch) and elr_enabled(self.image):
            for holders, partition in zip(self.holders, self.topic.partitions if self.holders else (), strict=True):
                if partition.replicas != (id,):  # what nobody else has goes on in a new leader epoch
                    holders.discard(id)
        self._apply(whole(brokers.register(self.image, registration, "cluster", DEFAULTS))[0])

    def lose_directory(self) -> None:
        id = self._some_broker(fenced=False)
        if id is not None and len(self.image.brokers[id].log_dirs) > 1:
            broker = self.image.brokers[id]
            self._apply(whole(directories.offline(self.image, broker, frozenset(broker.log_dirs[:1]), DEFAULTS)))

    def alter(self) -> None:
        """A leader changes its ISR; sometimes one that isn't leader any more, or knows an old epoch."""
        index = self.random.randrange(PARTITIONS)
        partition = self.topic.partitions[index]
        sender = partition.leader if self.random.random() < 0.9 else self.random.choice(partition.replicas)
        if sender not in self.image.brokers:
            return
        others = [r for r in partition.replicas if r != sender]
        isr = [sender, *self.random.sample(others, self.random.randint(0, len(others)))]
        epochs = {b.id: b.epoch for b in self.image.brokers.values()}
        data = PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch - (self.random.random() < 0.05),
            partition_epoch=partition.partition_epoch - (self.random.random() < 0.05),
            leader_recovery_state=0,
            new_isr_with_epochs=[
                BrokerState(broker_id=r, broker_epoch=epochs.get(r, 0) - (self.random.random() < 0.03)) for r in isr
            ],
        )
        request = AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=self._epoch(sender),
            topics=[TopicData(topic_id=TOPIC_ID, partitions=[data])],
        )
        records, response = whole(alter_partition(self.image, request, 3, DEFAULTS))
        (told,) = response.topics[0].partitions
        if records:
            self.holders[index] |= set(isr)  # they have come to its end
        self._apply(records)
        after = self.topic.partitions[index]
        if told.error_code == 0:
            assert (told.leader_id, told.leader_epoch, told.isr, told.partition_epoch) == (
                after.leader,
                after.leader_epoch,
                list(after.isr),
                after.partition_epoch,
            )
            assert after.leader == sender
        elif told.error_code == ErrorCode.NEW_LEADER_ELECTED:
            assert after.leader != sender
        else:
            assert not records

    def _reassign(self, replicas: list[int] | None) -> None:
        wanted = ReassignablePartition(partition_index=self.random.randrange(PARTITIONS), replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[wanted])])
        self._apply(whole(alter_reassignments(self.image, request, DEFAULTS))[0])

    def reassign(self) -> None:
        self._reassign(self.random.sample(list(BROKERS), self.random.randint(1, 3)))

    def cancel(self) -> None:
        self._reassign(None)

    def elect(self) -> None:
        kind = self.random.random() < 0.1
        request = ElectLeadersRequest(
            election_type=int(kind),
            topic_partitions=[TopicPartitions(topic="t", partitions=[self.random.randrange(PARTITIONS)])],
        )
        self._apply(whole(elect_leaders(self.image, request, DEFAULTS))[0])

    def balance(self) -> None:
        elect = self.random.choice([elect_preferred, elect_uncleanly])
        self._apply(whole(elect(self.image, DEFAULTS))[0])

    def assign(self) -> None:
        id = self._some_broker()
        if id is None:
            return
        online = self.random.random() < 0.8
        chosen = self.random.choice(self.directories[id]) if online else self._new_id()
        partitions = [AssignedPartition(partition_index=self.random.randrange(PARTITIONS))]
        request = AssignReplicasToDirsRequest(
            broker_id=id,
            broker_epoch=self._epoch(id),
            directories=[DirectoryData(id=chosen, topics=[AssignedTopic(topic_id=TOPIC_ID, partitions=partitions)])],
        )
        self._apply(whole(assign_replicas(self.image, request, DEFAULTS))[0])

    def configure(self) -> None:
        """As AlterConfigs does: a change of min.insync.replicas clears who was eligible by the old one."""
        if self.random.random() < 0.5:
            value = str(self.random.random() < 0.3).lower()
            name = "unclean.leader.election.enable"
        else:
            name, value = "min.insync.replicas", str(self.random.randint(1, 3))
        records: list[Any] = [ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)]
        if name == "min.insync.replicas" and elr_enabled(self.image):
            records.append(ClearElrRecord(topic_name="t"))
        self._apply(records)

    def unregister(self) -> None:
        id = self._some_broker(fenced=True)
        if id is not None and self.random.random() < 0.3:
            self._apply(whole(brokers.unregister(self.image, id, DEFAULTS))[0])

    # ---- what must hold ----

    def _apply(self, records: Sequence[Any]) -> None:
        if not records:
            return
        before = self.image
        self.image = after = fold(before, records, before.offset + len(records), 1, 0)
        after.check_invariants()
        if "t" not in before.topics:
            return
        for index, (old, new) in enumerate(zip(before.topics["t"].partitions, self.topic.partitions, strict=True)):
            changes = [r for r in records if isinstance(r, PartitionChangeRecord) and r.partition_id == index]
            cleared = any(isinstance(r, ClearElrRecord) for r in records)
            self._check_partition(index, old, new, changes, cleared=cleared)

    def _check_partition(
        self,
        index: int,
        old: PartitionImage,
        new: PartitionImage,
        changes: Sequence[PartitionChangeRecord],
        *,
        cleared: bool,
    ) -> None:
        where = (index, old, new, changes)
        lost_eligibility = cleared and bool(old.elr or old.last_known_elr)
        assert new.partition_epoch == old.partition_epoch + len(changes) + lost_eligibility, where
        assert new.leader_epoch >= old.leader_epoch, where
        assert new.leader == old.leader or new.leader_epoch > old.leader_epoch, where
        assert set(old.replicas) <= set(new.replicas) or new.leader_epoch > old.leader_epoch, where
        assert changes or cleared or old == new, where
        assert new.replicas, where
        assert len(set(new.replicas)) == len(new.replicas), where
        assert len(new.directories) == len(new.replicas), where
        assert set(new.isr) <= set(new.replicas), where
        assert {*new.elr, *new.adding, *new.removing} <= set(new.replicas), where
        assert not set(new.elr) & set(new.isr), where
        assert set(new.replicas) - set(new.removing), where
        assert not new.last_known_elr or new.leader == NO_LEADER, where
        assert new.leader_recovery_state != RECOVERING or len(new.isr) <= 1, where
        self._check_leader(new, where)
        self._check_data(index, new, where)

    def _check_leader(self, partition: PartitionImage, where: object) -> None:
        """Who leads is let in and has its directory, but where nobody else has the partition: that one stays."""
        if partition.leader == NO_LEADER:
            return
        broker = self.image.brokers.get(partition.leader)
        assert broker is not None, where
        if partition.replicas != (partition.leader,):
            assert broker.active, where
            assert brokers.is_directory_online(broker, partition), where
        members = [self.image.brokers.get(member) for member in partition.isr]
        assert all(m is not None and m.active for m in members) or len(members) == 1, where

    def _check_data(self, index: int, partition: PartitionImage, where: object) -> None:
        holders = self.holders[index] & set(partition.replicas)
        if partition.leader != NO_LEADER and partition.leader not in holders:
            assert partition.leader_recovery_state == RECOVERING, (where, holders)
        if partition.leader_recovery_state == RECOVERING:
            holders = {partition.leader}
        elif partition.leader != NO_LEADER:
            configured = int(effective_config(self.image, "t", "min.insync.replicas", "2"))
            enough = min(configured, len(partition.replicas))  # as the leader reckons it
            if len(partition.isr) >= enough or not elr_enabled(self.image):
                holders = set(partition.isr)
        self.holders[index] = holders


def live(seed: int) -> Life:
    life = Life(seed)
    for _ in range(STEPS):
        life.random.choice(life.actions)()
    return life


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_decided_in_whatever_order(seed: int) -> None:
    live(seed)


@pytest.mark.long
def test_whatever_is_decided_in_a_thousand_lives() -> None:
    for seed in range(1000, 2500):
        try:
            live(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
