"""The same brokers report to a controller of Apache Kafka's and to Tidelog's: the same answers, and the same metadata.

No broker runs: the test speaks for five of them, over one connection to each controller, and reads what was decided
from its metadata log.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.kafka.mixed import Kind, MixedCluster, wait_for
from tests.nodes import CONTROLLER
from tests.raw import Connection
from tidelog.metadata.apply import fold
from tidelog.metadata.image import BROKER_RESOURCE, EMPTY_IMAGE, TOPIC_RESOURCE, ClusterImage, PartitionImage
from tidelog.metadata.versions import SUPPORTED
from tidelog.wire import batch
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey
from tidelog.wire.records.metadata import PartitionChangeRecord, decode_record

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

BROKERS = range(11, 16)
METADATA_ID = bytes(15) + b"\x01"
SETTINGS = {"broker.session.timeout.ms": "6000", "auto.leader.rebalance.enable": "false"}
CAUGHT_UP = 2**40
LOST_DIRECTORY = bytes(15) + b"\x02"
"""Kafka's id for what is in no directory that the broker can use."""
TOPICS: dict[str, tuple[dict[str, str], list[list[int]]]] = {
    "strict": ({"min.insync.replicas": "2"}, [[11, 12, 13], [12, 13, 14], [15, 11, 12]]),
    "unclean": ({"unclean.leader.election.enable": "true"}, [[11, 12, 13], [14, 15, 11]]),
    "two": ({}, [[13, 14], [15, 12]]),
}
STEPS = 200


class Controller:
    """A controller, as brokers see it. `epochs` are those of the brokers' present registrations."""

    def __init__(self, cluster: MixedCluster) -> None:
        wait_for(lambda: cluster.quorum() is not None, "an active controller")
        self.leader_epoch = cluster.quorum().leader_epoch
        self.connection = Connection(cluster[1].controller_address)
        self.epochs: dict[int, int] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.image = EMPTY_IMAGE
        self._next = (0, 0)
        self._repeated: Counter[tuple[bytes, int]] = Counter()
        """Changes of a partition that were written twice at once, as Kafka does where it finds one in two ways."""

    def ask(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        return self.connection.ask(key, version, fields)

    def follow(self) -> ClusterImage:
        """The metadata with all that is committed by now."""
        while True:
            offset, epoch = self._next
            partition = {
                "fetch_offset": offset,
                "last_fetched_epoch": epoch,
                "current_leader_epoch": self.leader_epoch,
                "partition_max_bytes": 1 << 20,
            }
            topics = [{"topic_id": METADATA_ID, "partitions": [partition]}]
            answer = self.ask(ApiKey.FETCH, 17, {"max_wait_ms": 0, "min_bytes": 0, "topics": topics})
            found = answer.responses[0].partitions[0]
            assert (answer.error_code, found.error_code) == (0, 0)
            data = bytes(found.records or b"")
            if not data:
                return self.image
            for header in batch.iterate(data):
                self._next = (header.base_offset + header.last_offset_delta + 1, header.leader_epoch)
                if not header.control:
                    records = [decode_record(bytes(one.value or b"")) for one in batch.records(data, header)]
                    self._note_repeated(records)
                    self.image = fold(self.image, records, self._next[0] - 1, header.leader_epoch, 0)

    def _note_repeated(self, records: list[Any]) -> None:
        seen: list[PartitionChangeRecord] = []
        for record in records:
            if isinstance(record, PartitionChangeRecord):
                if record in seen:
                    self._repeated[record.topic_id, record.partition_id] += 1
                seen.append(record)

    def _epoch(self, topic_id: bytes, index: int, epoch: int) -> int:
        """A partition epoch, without what was written twice."""
        return epoch - self._repeated[topic_id, index]

    # ---- what brokers say ----

    def register(self, id: int, incarnation: int, previous_epoch: int) -> int:
        answer = self.ask(
            ApiKey.BROKER_REGISTRATION,
            4,
            {
                "broker_id": id,
                "cluster_id": self._cluster_id(),
                "incarnation_id": incarnation.to_bytes(16),
                "listeners": [{"name": "PLAINTEXT", "host": "localhost", "port": 9000 + id}],
                "features": [
                    {"name": name, "min_supported_version": low, "max_supported_version": high}
                    for name, (low, high) in SUPPORTED.items()
                ],
                "rack": None,
                "log_dirs": directories(id),
                "previous_broker_epoch": previous_epoch,
            },
        )
        if not answer.error_code:
            self.epochs[id] = answer.broker_epoch
        return answer.error_code

    def _cluster_id(self) -> str:
        return self.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": 2}).cluster_id

    def beat(self, id: int, **fields: Any) -> tuple[int, bool, bool, bool]:
        answer = self.ask(
            ApiKey.BROKER_HEARTBEAT,
            1,
            {
                "broker_id": id,
                "broker_epoch": self.epochs[id],
                "current_metadata_offset": CAUGHT_UP,
                **fields,
            },
        )
        return answer.error_code, answer.is_caught_up, answer.is_fenced, answer.should_shut_down

    def shut_down(self, id: int) -> bool:
        """As a broker that stops asks, until it may, or for a while."""
        return any(self.beat(id, want_shut_down=True)[3] for _ in range(10))

    def create(self, name: str) -> int:
        configs, assignments = TOPICS[name]
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": i, "broker_ids": ids} for i, ids in enumerate(assignments)],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        (answer,) = self.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 20_000}).topics
        self.topic_ids[name] = answer.topic_id
        return answer.error_code

    def alter(self, name: str, index: int, sender: int, isr: list[int], **off: int) -> list[Any]:
        partition = self.image.topics[name].partitions[index]
        data = {
            "partition_index": index,
            "leader_epoch": partition.leader_epoch + off.get("leader_epoch", 0),
            "partition_epoch": partition.partition_epoch + off.get("partition_epoch", 0),
            "leader_recovery_state": off.get("recovery_state", 0),
            "new_isr_with_epochs": [
                {"broker_id": id, "broker_epoch": self.epochs.get(id, 0) + off.get("broker_epoch", 0)} for id in isr
            ],
        }
        topics = [{"topic_id": self.topic_ids[name], "partitions": [data]}]
        fields = {"broker_id": sender, "broker_epoch": self.epochs.get(sender, 0), "topics": topics}
        answer = self.ask(ApiKey.ALTER_PARTITION, 3, fields)
        told = [p for topic in answer.topics for p in topic.partitions]
        for p in told:
            if not p.error_code:
                p.partition_epoch = self._epoch(self.topic_ids[name], index, p.partition_epoch)
        return [answer.error_code, *told]

    def elect(self, kind: int, name: str, index: int) -> list[int]:
        fields = {"election_type": kind, "topic_partitions": [{"topic": name, "partitions": [index]}]}
        answer = self.ask(ApiKey.ELECT_LEADERS, 2, {**fields, "timeout_ms": 20_000})
        codes = [p.error_code for t in answer.replica_election_results for p in t.partition_result]
        return [answer.error_code, *codes]

    def reassign(self, name: str, index: int, replicas: list[int] | None, *, factor_may_change: bool) -> list[int]:
        fields = {
            "timeout_ms": 20_000,
            "allow_replication_factor_change": factor_may_change,
            "topics": [{"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}],
        }
        answer = self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, fields)
        return [answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)]

    def reassignments(self) -> list[Any]:
        answer = self.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout_ms": 20_000, "topics": None})
        return sorted(
            (t.name, p.partition_index, p.replicas, p.adding_replicas, p.removing_replicas)
            for t in answer.topics
            for p in t.partitions
        )

    def assign(self, id: int, directory: bytes, name: str, index: int) -> list[int]:
        topics = [{"topic_id": self.topic_ids[name], "partitions": [{"partition_index": index}]}]
        fields = {
            "broker_id": id,
            "broker_epoch": self.epochs[id],
            "directories": [{"id": directory, "topics": topics}],
        }
        answer = self.ask(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, fields)
        codes = [p.error_code for d in answer.directories for t in d.topics for p in t.partitions]
        return [answer.error_code, *codes]

    def configure(self, name: str, setting: str, value: str) -> int:
        """A topic's setting; the default of all brokers, where it has no name."""
        kind = TOPIC_RESOURCE if name else BROKER_RESOURCE
        config = {"name": setting, "config_operation": 0, "value": value}
        fields = {"resources": [{"resource_type": kind, "resource_name": name, "configs": [config]}]}
        (answer,) = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
        return answer.error_code

    def unregister(self, id: int) -> int:
        return self.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": id}).error_code

    # ---- what the metadata say ----

    def partitions(self) -> dict[str, list[PartitionImage]]:
        """Only replicas count as eligible: docs/differences.md."""
        return {
            name: [
                p._replace(
                    partition_epoch=self._epoch(topic.id, index, p.partition_epoch),
                    elr=tuple(replica for replica in p.elr if replica in p.replicas),
                )
                for index, p in enumerate(topic.partitions)
            ]
            for name, topic in sorted(self.follow().topics.items())
        }

    def brokers(self) -> dict[int, Any]:
        known = self.follow().brokers.values()
        return {b.id: (b.fenced, b.in_controlled_shutdown, sorted(b.log_dirs)) for b in known}


def directories(id: int) -> list[bytes]:
    return [b"first  disk %4d" % id, b"second disk %4d" % id]


class Both:
    """What is asked of one is asked of the other, and the answers are the same."""

    def __init__(self, apache: Controller, tidelog: Controller, seed: int) -> None:
        self.apache = apache
        self.tidelog = tidelog
        self.random = Random(seed)
        self.incarnations = 0
        self.done: list[str] = []

    def ask(self, what: str, *args: Any, **fields: Any) -> Any:
        self.done.append(f"{what}{args}{fields or ''}")
        apaches = getattr(self.apache, what)(*args, **fields)
        ours = getattr(self.tidelog, what)(*args, **fields)
        assert ours == apaches, f"{ours} instead of {apaches} {self.history()}"
        return ours

    def check(self) -> None:
        assert self.tidelog.partitions() == self.apache.partitions(), self.history()
        assert self.tidelog.brokers() == self.apache.brokers(), self.history()

    def history(self) -> str:
        return "after\n  " + "\n  ".join(self.done[-12:])

    @property
    def image(self) -> ClusterImage:
        return self.tidelog.image

    # ---- steps ----

    def register(self, id: int, *, clean: bool = False) -> None:
        self.incarnations += 1
        self.done.append(f"register {id} {'clean' if clean else 'unclean'}")
        for one in (self.apache, self.tidelog):
            previous = one.epochs.get(id, -1) if clean else -1
            # Kafka waits until the session of the last incarnation is over, also where that stopped in order.
            wait_for(lambda one=one, previous=previous: self._is_in(one, id, previous), "a broker to be registered")

    def _is_in(self, one: Controller, id: int, previous_epoch: int) -> bool:
        self.keep_alive()
        code = one.register(id, self.incarnations, previous_epoch)
        waiting = (ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.NOT_CONTROLLER)
        assert code in (ErrorCode.NONE, *waiting), f"{code} {self.history()}"
        return not code

    def keep_alive(self) -> None:
        for active in [b.id for b in self.image.brokers.values() if not b.fenced]:
            for one in (self.apache, self.tidelog):
                one.beat(active)

    def begin(self) -> None:
        for id in BROKERS:
            self.register(id)
            self.ask("beat", id)
        for name in TOPICS:
            assert self.ask("create", name) == 0
        self.check()

    def step(self) -> None:
        steps = [self.alter] * 6 + [self.fence, self.unfence, self.unfence, self.restart, self.elect, self.elect]
        steps += [self.reassign, self.reassign, self.assign, self.lose_directory, self.list, self.unregister]
        steps += [self.configure]
        self.random.choice(steps)()
        self.check()
        self.keep_alive()

    def _partition(self) -> tuple[str, int, PartitionImage]:
        name = self.random.choice(list(TOPICS))
        partitions = self.image.topics[name].partitions
        index = self.random.randrange(len(partitions))
        return name, index, partitions[index]

    def alter(self) -> None:
        name, index, partition = self._partition()
        random = self.random
        sender = partition.leader if random.random() < 0.9 else random.choice(partition.replicas)
        others = [id for id in partition.replicas if id != sender]
        if random.random() < 0.7:  # as things go: of those that are there, nearly all
            live = [id for id in others if id in self.image.brokers and self.image.brokers[id].active]
            isr = [sender, *random.sample(live, max(0, len(live) - random.choice([0, 0, 1])))]
        else:
            isr = random.sample([sender, *others, 15], random.randint(0, len(others) + 1))
        off: dict[str, int] = {}
        if random.random() < 0.15:
            off = {random.choice(["leader_epoch", "partition_epoch", "broker_epoch"]): random.choice([-1, 1])}
        if random.random() < 0.1:
            off["recovery_state"] = 1
        self.ask("alter", name, index, sender, isr, **off)

    def _broker(self, *, fenced: bool) -> int | None:
        fitting = [b.id for b in self.image.brokers.values() if b.fenced == fenced and not b.in_controlled_shutdown]
        return self.random.choice(fitting) if fitting else None

    def fence(self) -> None:
        id = self._broker(fenced=False)
        if id is not None:
            self.ask("beat", id, want_fence=True)

    def unfence(self) -> None:
        id = self._broker(fenced=True)
        if id is not None:
            self.ask("beat", id)

    def restart(self) -> None:
        self.keep_alive()  # Kafka counts what a broker has seen from its second heartbeat on
        id = self._broker(fenced=False)
        if id is not None and self.ask("shut_down", id):
            self.check()
            self.register(id, clean=self.random.random() < 0.6)
            self.check()
            if self.random.random() < 0.7:
                self.ask("beat", id)

    def elect(self) -> None:
        name, index, _ = self._partition()
        self.ask("elect", int(self.random.random() < 0.3), name, index)

    def reassign(self) -> None:
        """Replacing one that is under way, or with replicas that are eligible, differs: docs/differences.md."""
        name, index, partition = self._partition()
        if partition.adding or partition.removing:
            if set(partition.isr) - set(partition.adding) and not partition.elr:
                self.ask("reassign", name, index, None, factor_may_change=True)
            return
        if partition.elr or len(partition.isr) < 2:
            return
        wanted = self.random.sample([*BROKERS, 99] if self.random.random() < 0.1 else list(BROKERS), 2)
        if self.random.random() < 0.6:
            wanted += [id for id in BROKERS if id not in wanted][: self.random.randint(0, 2)]
        self.ask("reassign", name, index, wanted, factor_may_change=self.random.random() < 0.7)

    def assign(self) -> None:
        name, index, partition = self._partition()
        id = self.random.choice(partition.replicas if self.random.random() < 0.9 else list(BROKERS))
        if id in self.image.brokers:
            chosen = self.random.choice([*directories(id), *directories(id), LOST_DIRECTORY])
            self.ask("assign", id, chosen, name, index)

    def lose_directory(self) -> None:
        id = self._broker(fenced=False)
        if id is not None and self.random.random() < 0.3:
            self.ask("beat", id, offline_log_dirs=directories(id)[:1])

    def list(self) -> None:
        self.ask("reassignments")

    def configure(self) -> None:
        """Who was eligible by another min.insync.replicas is so no more."""
        name = self.random.choice(["", *TOPICS])
        self.ask("configure", name, "min.insync.replicas", str(self.random.randint(1, 2)))

    def unregister(self) -> None:
        id = self._broker(fenced=True)
        if id is not None and self.random.random() < 0.3:
            self.ask("unregister", id)
            self.check()
            self.register(id)


@pytest.fixture(scope="module")
def clusters(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[MixedCluster]]:
    with (
        MixedCluster(tmp_path_factory.mktemp("apache"), {1: (Kind.APACHE, CONTROLLER)}, SETTINGS) as apache,
        MixedCluster(tmp_path_factory.mktemp("tidelog"), {1: (Kind.TIDELOG, CONTROLLER)}, SETTINGS) as tidelog,
    ):
        apache.start()
        tidelog.start()
        yield [apache, tidelog]


def test_the_same_is_decided(clusters: list[MixedCluster]) -> None:
    apache, tidelog = (Controller(cluster) for cluster in clusters)
    with apache.connection, tidelog.connection:
        both = Both(apache, tidelog, seed=1)
        both.begin()
        for _ in range(STEPS):
            both.step()
