"""Folds metadata records into an image: the only way in which an image comes to be, at start, at a follower, or live.

`ImageBuilder` is mutable while records stream through it, so that loading 100,000 partitions doesn't make 100,000
images; `build` freezes what it holds. Mappings and topics that no record touched are shared with the image before, and
of a topic that one did all partitions but those near the changed ones.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tidelog.env.slices import Steps, whole
from tidelog.metadata.broker_replicas import BrokerReplicasChange
from tidelog.metadata.chunks import Chunked
from tidelog.metadata.image import (
    TOPIC_RESOURCE,
    BrokerImage,
    ClusterImage,
    ControllerImage,
    EndpointImage,
    PartitionImage,
    TopicImage,
    unified_name,
)
from tidelog.wire.records.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1
RECORDS_A_STEP = 64


class ImageError(ValueError):
    """A record that can't follow what came before it: the metadata log is not one that a controller wrote."""


def fold(image: ClusterImage, records: Iterable[Record], offset: int, epoch: int, timestamp_ms: int) -> ClusterImage:
    """The image after `records`, the last of which stands at `offset`."""
    return whole(fold_steps(image, records, offset, epoch, timestamp_ms))


def fold_steps(
    image: ClusterImage, records: Iterable[Record], offset: int, epoch: int, timestamp_ms: int
) -> Steps[ClusterImage]:
    """As `fold`, in steps."""
    builder = ImageBuilder(image)
    for count, record in enumerate(records, 1):
        builder.apply(record)
        if not count % RECORDS_A_STEP:
            yield
    return (yield from builder.build_steps(offset, epoch, timestamp_ms))


class _Touched:
    """A topic that records are about: what they change of its partitions, and what they add behind them."""

    __slots__ = ("added", "before", "changes", "name")

    def __init__(self, name: str, before: Chunked[PartitionImage]) -> None:
        self.name = name
        self.before = before
        self.changes: dict[int, PartitionImage] = {}
        self.added: list[PartitionImage | None] = []
        """None: its record has yet to come."""

    def get(self, index: int) -> PartitionImage | None:
        known = len(self.before)
        if 0 <= index < known:
            return self.changes.get(index) or self.before[index]
        return self.added[index - known] if 0 <= index - known < len(self.added) else None

    def put(self, index: int, partition: PartitionImage) -> None:
        place = index - len(self.before)
        if place < 0:
            self.changes[index] = partition
        elif place < len(self.added):
            self.added[place] = partition
        else:  # where it is out of order, `complete` finds whether one is left out
            self.added.extend([None] * (place - len(self.added)))
            self.added.append(partition)

    def complete(self) -> list[PartitionImage]:
        """The added ones."""
        if None in self.added:
            raise ImageError(f"topic {self.name} lacks partition {len(self.before) + self.added.index(None)}")
        return self.added  # pyright: ignore[reportReturnType]


class ImageBuilder:
    """An image that records are being folded into."""

    __slots__ = (
        "_broker_replicas",
        "_configs",
        "_fields",
        "_image",
        "_interned",
        "_new_names",
        "_owned",
        "_topics",
        "_transaction",
    )

    def __init__(self, image: ClusterImage) -> None:
        self._interned: dict[Any, PartitionImage] = {}
        self._begin(image)

    def _begin(self, image: ClusterImage) -> None:
        self._image = image
        self._transaction = image.before_transaction
        self._owned: dict[str, Any] = {}  # mappings that were copied, by the name of their field
        self._fields: dict[str, Any] = {}  # plain fields that changed
        self._topics: dict[bytes, _Touched] = {}  # touched ones, by their ids
        self._broker_replicas = BrokerReplicasChange(image.broker_replicas)
        self._new_names: set[str] = set()
        self._configs: dict[tuple[int, str], dict[str, str]] = {}  # of touched resources

    def apply(self, record: Record) -> None:
        handler = _HANDLERS.get(type(record))
        if handler is None:
            raise ImageError(f"{type(record).__name__} is no metadata record that this version knows")
        handler(self, record)

    def build(self, offset: int, epoch: int, timestamp_ms: int) -> ClusterImage:
        """The image as it now is. The builder is used up."""
        return whole(self.build_steps(offset, epoch, timestamp_ms))

    def build_steps(self, offset: int, epoch: int, timestamp_ms: int) -> Steps[ClusterImage]:
        changed = dict(self._fields)
        if self._topics:
            by_name, by_id = self._own("topics"), self._own("topics_by_id")
            for count, (topic_id, touched) in enumerate(self._topics.items(), 1):
                added = touched.complete()
                self._broker_replicas.topic(topic_id, touched.before, touched.changes, added)
                topic = TopicImage(touched.name, topic_id, touched.before.changed(touched.changes, added))
                by_name[topic.name] = by_id[topic_id] = topic
                if not count % RECORDS_A_STEP or len(added) > RECORDS_A_STEP:
                    yield
        changed.update(self._owned)
        return replace(
            self._image,
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            before_transaction=self._transaction,
            broker_replicas=self._broker_replicas.result(),
            **changed,
        )

    def _own(self, name: str) -> dict[Any, Any]:
        """The mapping of that field, copied from the image once."""
        mapping = self._owned.get(name)
        if mapping is None:
            mapping = self._owned[name] = dict(getattr(self._image, name))
        return mapping

    def _current(self, name: str) -> Any:
        mapping = self._owned.get(name)
        return mapping if mapping is not None else getattr(self._image, name)

    # ---- topics and partitions ----

    def topic(self, record: TopicRecord) -> None:
        if record.name in self._current("topics") or record.name in self._new_names:
            raise ImageError(f"TopicRecord for {record.name}, which exists")
        self._topics[record.topic_id] = _Touched(record.name, Chunked())
        self._fields["shape"] = object()
        self._new_names.add(record.name)
        unified = unified_name(record.name)
        if unified is not None:
            names = self._own("unified_names")
            names[unified] = (*names.get(unified, ()), record.name)

    def _touch(self, topic_id: bytes, kind: str) -> _Touched:
        touched = self._topics.get(topic_id)
        if touched is None:
            topic: TopicImage | None = self._current("topics_by_id").get(topic_id)
            if topic is None:
                raise ImageError(f"{kind} for topic id {topic_id.hex()}, which doesn't exist")
            touched = self._topics[topic_id] = _Touched(topic.name, topic.partitions)
        return touched

    def partition(self, record: PartitionRecord) -> None:
        touched = self._touch(record.topic_id, "PartitionRecord")
        made = PartitionImage(
            tuple(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.directories or ()),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            record.leader_recovery_state,
        )
        self._fields["shape"] = object()
        if record.partition_id < 0:
            raise ImageError(f"PartitionRecord with index {record.partition_id}")
        touched.put(record.partition_id, self._interned.setdefault(made, made))

    def partition_change(self, record: PartitionChangeRecord) -> None:
        touched = self._touch(record.topic_id, "PartitionChangeRecord")
        index = record.partition_id
        old = touched.get(index)
        if old is None:
            raise ImageError(f"PartitionChangeRecord for {touched.name}-{index}, which doesn't exist")
        if record.replicas is not None:
            self._fields["shape"] = object()
        made = changed_partition(old, record)
        touched.put(index, self._interned.setdefault(made, made))

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        touched = self._touch(record.topic_id, "RemoveTopicRecord")
        self._fields["shape"] = object()
        name = touched.name
        del self._topics[record.topic_id]
        self._broker_replicas.remove(record.topic_id, touched.before)
        self._new_names.discard(name)
        self._own("topics").pop(name, None)
        self._own("topics_by_id").pop(record.topic_id, None)
        unified = unified_name(name)
        if unified is not None:
            names = self._own("unified_names")
            names[unified] = tuple(other for other in names[unified] if other != name)
            if not names[unified]:
                del names[unified]
        self._configs.pop((TOPIC_RESOURCE, name), None)
        if (TOPIC_RESOURCE, name) in self._current("configs"):
            del self._own("configs")[(TOPIC_RESOURCE, name)]

    def clear_elr(self, record: ClearElrRecord) -> None:
        """Of one topic, or of all where it names none. A partition that had any has a new partition epoch, as after
        every change: leaders and Kafka's controllers count on it."""
        if record.topic_name:
            named = self._current("topics").get(record.topic_name)
            ids = [named.id] if named is not None else []
            ids += [id for id, touched in self._topics.items() if touched.name == record.topic_name and id not in ids]
            if not ids:
                raise ImageError(f"ClearElrRecord for topic {record.topic_name}, which doesn't exist")
        else:
            ids = [
                id
                for id, topic in self._current("topics_by_id").items()
                if id not in self._topics and any(map(_has_elr, topic.partitions))
            ]
            ids += self._topics
        for topic_id in ids:
            touched = self._touch(topic_id, "ClearElrRecord")
            for index in range(len(touched.before) + len(touched.added)):
                partition = touched.get(index)
                if partition is not None and _has_elr(partition):
                    epoch = partition.partition_epoch + 1
                    made = partition._replace(elr=(), last_known_elr=(), partition_epoch=epoch)
                    touched.put(index, self._interned.setdefault(made, made))

    # ---- brokers and controllers ----

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        self._own("brokers")[record.broker_id] = BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
        )

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch, "UnregisterBrokerRecord")
        del self._own("brokers")[record.broker_id]

    def _broker(self, broker_id: int, epoch: int, kind: str) -> BrokerImage:
        broker: BrokerImage | None = self._current("brokers").get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise ImageError(f"{kind} for broker {broker_id} of epoch {epoch}, which isn't registered")
        return broker

    def fence(self, record: FenceBrokerRecord) -> None:
        broker = self._broker(record.id, record.epoch, "FenceBrokerRecord")
        self._own("brokers")[record.id] = replace(broker, fenced=True)

    def unfence(self, record: UnfenceBrokerRecord) -> None:
        broker = self._broker(record.id, record.epoch, "UnfenceBrokerRecord")
        self._own("brokers")[record.id] = replace(broker, fenced=False)

    def change_registration(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch, "BrokerRegistrationChangeRecord")
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            changes["log_dirs"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = tuple(record.cordoned_log_dirs)
        self._own("brokers")[record.broker_id] = replace(broker, **changes)

    def register_controller(self, record: RegisterControllerRecord) -> None:
        self._own("controllers")[record.controller_id] = ControllerImage(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )

    # ---- the rest ----

    def config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        values = self._configs.get(key)
        if values is None:  # copied once: a resource may have thousands
            values = self._configs[key] = dict(self._own("configs").get(key, ()))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self._own("configs")[key] = values
        else:
            self._own("configs").pop(key, None)

    def feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self._own("features")[record.name] = record.feature_level
        else:
            self._own("features").pop(record.name, None)

    def producer_ids(self, record: ProducerIdsRecord) -> None:
        self._fields["next_producer_id"] = record.next_producer_id

    def quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted(((e.entity_type, e.entity_name) for e in record.entity), key=str))
        quotas = self._own("quotas")
        values = dict(quotas.get(entity, ()))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            quotas[entity] = values
        else:
            quotas.pop(entity, None)

    def acl(self, record: AccessControlEntryRecord) -> None:
        self._own("acls")[record.id] = record

    def remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        if self._own("acls").pop(record.id, None) is None:
            raise ImageError(f"RemoveAccessControlEntryRecord for {record.id.hex()}, which doesn't exist")

    def scram(self, record: UserScramCredentialRecord) -> None:
        self._own("scram")[(record.name, record.mechanism)] = record

    def remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        self._own("scram").pop((record.name, record.mechanism), None)

    def token(self, record: DelegationTokenRecord) -> None:
        self._own("tokens")[record.token_id] = record

    def remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self._own("tokens").pop(record.token_id, None)

    def nothing(self, record: NoOpRecord | ZkMigrationStateRecord) -> None:
        """Only its offset counts."""

    # ---- metadata transactions: all of it becomes visible at the end, or none ----

    def begin_transaction(self, record: BeginTransactionRecord) -> None:
        if self._transaction is not None:
            raise ImageError("BeginTransactionRecord within a metadata transaction")
        image = self.build(self._image.offset, self._image.epoch, self._image.timestamp_ms)
        self._begin(image)
        self._transaction = image

    def end_transaction(self, record: EndTransactionRecord) -> None:
        if self._transaction is None:
            raise ImageError("EndTransactionRecord outside a metadata transaction")
        self._transaction = None

    def abort_transaction(self, record: AbortTransactionRecord) -> None:
        if self._transaction is None:
            raise ImageError("AbortTransactionRecord outside a metadata transaction")
        self._begin(self._transaction)


def changed_partition(old: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """The partition after a change. Naming a leader, even the same one, opens a new leader epoch."""
    leader_changes = record.leader != NO_LEADER_CHANGE
    replicas = old.replicas if record.replicas is None else tuple(record.replicas)
    return PartitionImage(
        replicas,
        old.isr if record.isr is None else tuple(record.isr),
        record.leader if leader_changes else old.leader,
        old.leader_epoch + leader_changes,
        old.partition_epoch + 1,
        old.directories if record.directories is None else tuple(record.directories),
        old.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
        old.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
        old.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        old.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        old.leader_recovery_state
        if record.leader_recovery_state == NO_RECOVERY_CHANGE
        else record.leader_recovery_state,
    )


def _has_elr(partition: PartitionImage) -> bool:
    return bool(partition.elr or partition.last_known_elr)


def _endpoints(endpoints: Iterable[Any]) -> tuple[EndpointImage, ...]:
    return tuple(EndpointImage(e.name, e.host, e.port, e.security_protocol) for e in endpoints)


def _features(features: Iterable[Any]) -> dict[str, tuple[int, int]]:
    return {f.name: (f.min_supported_version, f.max_supported_version) for f in features}


_HANDLERS: dict[type, Callable[[ImageBuilder, Any], None]] = {
    RegisterBrokerRecord: ImageBuilder.register_broker,
    UnregisterBrokerRecord: ImageBuilder.unregister_broker,
    TopicRecord: ImageBuilder.topic,
    PartitionRecord: ImageBuilder.partition,
    ConfigRecord: ImageBuilder.config,
    PartitionChangeRecord: ImageBuilder.partition_change,
    FenceBrokerRecord: ImageBuilder.fence,
    UnfenceBrokerRecord: ImageBuilder.unfence,
    RemoveTopicRecord: ImageBuilder.remove_topic,
    DelegationTokenRecord: ImageBuilder.token,
    UserScramCredentialRecord: ImageBuilder.scram,
    FeatureLevelRecord: ImageBuilder.feature,
    ClientQuotaRecord: ImageBuilder.quota,
    ProducerIdsRecord: ImageBuilder.producer_ids,
    BrokerRegistrationChangeRecord: ImageBuilder.change_registration,
    AccessControlEntryRecord: ImageBuilder.acl,
    RemoveAccessControlEntryRecord: ImageBuilder.remove_acl,
    NoOpRecord: ImageBuilder.nothing,
    ZkMigrationStateRecord: ImageBuilder.nothing,
    RemoveUserScramCredentialRecord: ImageBuilder.remove_scram,
    BeginTransactionRecord: ImageBuilder.begin_transaction,
    EndTransactionRecord: ImageBuilder.end_transaction,
    AbortTransactionRecord: ImageBuilder.abort_transaction,
    RemoveDelegationTokenRecord: ImageBuilder.remove_token,
    RegisterControllerRecord: ImageBuilder.register_controller,
    ClearElrRecord: ImageBuilder.clear_elr,
}
