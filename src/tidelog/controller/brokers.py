"""Brokers come, go and come back: registration, fencing, unfencing, controlled shutdown.

A broker's epoch is the offset at which its registration was decided: it rises with every incarnation, so requests of an
old self are told apart. A broker is registered fenced; it leads nothing until it is unfenced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.controller.assignments import default_directory
from tidelog.controller.leaders import Defaults, change_leaders, elr_enabled
from tidelog.machine.decision import Decision
from tidelog.metadata.image import NO_LEADER, BrokerImage, ClusterImage, EndpointImage
from tidelog.metadata.records import broker_record
from tidelog.metadata.versions import METADATA_VERSION, MV_3_7_IV0, MV_3_7_IV2, MV_4_3_IV0
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.nodes import (
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from tidelog.wire.records.topics import PartitionChangeRecord
from tidelog.wire.uuids import uuid_text

RESERVED_DIRECTORIES_BELOW = 100
"""Directory ids that Kafka keeps for itself: unassigned, lost, migrating, and room for more."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker says of itself. `previous_epoch` is the epoch under which it last stopped cleanly, or -1."""

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: tuple[EndpointImage, ...]
    features: dict[str, tuple[int, int]]
    log_dirs: tuple[bytes, ...]
    rack: str | None = None
    previous_epoch: int = -1


def register(
    image: ClusterImage, registration: Registration, cluster_id: str, defaults: Defaults
) -> Decision[Any, int]:
    """Take a broker in, fenced; the answer is its epoch. A second request of the same incarnation keeps it."""
    if registration.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {registration.broker_id} is of cluster {registration.cluster_id}, this is cluster {cluster_id}",
        )
    _check_directories(image, registration)
    _check_features(image, registration)
    known = image.brokers.get(registration.broker_id)
    records: list[Any] = []
    same = known is not None and known.incarnation_id == registration.incarnation_id
    if known is not None and not same:
        clean = known.epoch == registration.previous_epoch
        records.extend(_went_down(image, known.id, clean=clean, defaults=defaults))
    epoch = known.epoch if known is not None and same else image.offset + 1
    directories = image.metadata_version >= MV_3_7_IV2
    broker = BrokerImage(
        id=registration.broker_id,
        epoch=epoch,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        features=registration.features,
        rack=registration.rack,
        fenced=known.fenced if known is not None and same else True,
        in_controlled_shutdown=known.in_controlled_shutdown if known is not None and same else False,
        log_dirs=registration.log_dirs if directories else (),
    )
    records.extend(_without_lost_directories(image, broker))
    # The registration comes last: should the rest be cut off, the broker registers again and it is done again.
    records.append(broker_record(broker))
    return Decision(records, epoch)


def _without_lost_directories(image: ClusterImage, broker: BrokerImage) -> list[Any]:
    """Partitions whose directory the broker no longer has are in whichever it chooses for them."""
    records: list[Any] = []
    if not broker.log_dirs:
        return records
    before = image.brokers.get(broker.id)
    if before is None or set(before.log_dirs) <= set(broker.log_dirs):
        return records
    lost = set(before.log_dirs) - set(broker.log_dirs)
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            places = list(zip(partition.replicas, partition.directories, strict=False))
            if any(replica == broker.id and directory in lost for replica, directory in places):
                directories = [
                    default_directory(broker) if replica == broker.id and directory in lost else directory
                    for replica, directory in places
                ]
                records.append(PartitionChangeRecord(partition_id=index, topic_id=topic.id, directories=directories))
    return records


def _went_down(image: ClusterImage, broker_id: int, *, clean: bool, defaults: Defaults) -> list[Any]:
    """The broker's former self is gone. Where it may have lost data, it is no longer eligible for anything."""
    if clean:
        return leave_isr(image, broker_id, defaults)
    eligible = elr_enabled(image)
    return list(
        change_leaders(
            image,
            defaults,
            lambda partition: broker_id in partition.isr or (eligible and broker_id in partition.elr),
            acceptable=active_in(image),
            leaving=NO_LEADER if eligible else broker_id,
            unclean=broker_id if eligible else NO_LEADER,
            reopening=broker_id,
        )
    )


def leave_isr(image: ClusterImage, broker_id: int, defaults: Defaults) -> list[Any]:
    return list(
        change_leaders(
            image,
            defaults,
            lambda partition: broker_id in partition.isr,
            acceptable=active_in(image),
            leaving=broker_id,
        )
    )


def active_in(image: ClusterImage) -> "_Active":
    return _Active(image)


class _Active:
    """Whether a broker may lead, as the image has it; `also` one that is just being let in."""

    __slots__ = ("_also", "_brokers")

    def __init__(self, image: ClusterImage, also: int = NO_LEADER) -> None:
        self._brokers = image.brokers
        self._also = also

    def __call__(self, broker_id: int) -> bool:
        broker = self._brokers.get(broker_id)
        return broker is not None and (broker.active or broker_id == self._also)


def check_epoch(image: ClusterImage, broker_id: int, epoch: int) -> BrokerImage:
    """The broker, if it speaks under its present registration."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} isn't registered")
    if broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, the request says {epoch}"
        )
    return broker


def unfence(image: ClusterImage, broker_id: int, epoch: int, defaults: Defaults) -> Decision[Any, None]:
    """The broker has caught up: it may lead, and takes the partitions that wait for it."""
    broker = check_epoch(image, broker_id, epoch)
    if not broker.fenced:
        return Decision([], None)
    records: list[Any] = []
    if broker.cordoned_log_dirs is None and image.metadata_version >= MV_4_3_IV0:
        records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, cordoned_log_dirs=[]))
    records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=-1))
    records.extend(
        change_leaders(
            image, defaults, lambda partition: partition.leader == NO_LEADER, acceptable=_Active(image, also=broker_id)
        )
    )
    return Decision(records, None)


def fence(image: ClusterImage, broker_id: int, epoch: int, defaults: Defaults) -> Decision[Any, None]:
    """The broker is silent, or stopped: others lead what it led."""
    broker = check_epoch(image, broker_id, epoch)
    if broker.fenced:
        return Decision([], None)
    records: list[Any] = leave_isr(image, broker_id, defaults)
    records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1))
    return Decision(records, None)


def controlled_shutdown(image: ClusterImage, broker_id: int, epoch: int, defaults: Defaults) -> Decision[Any, None]:
    """The broker wants to stop: it hands over what it leads, and then is fenced."""
    broker = check_epoch(image, broker_id, epoch)
    records: list[Any] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=1)
        )
    records.extend(leave_isr(image, broker_id, defaults))
    return Decision(records, None)


def unregister(image: ClusterImage, broker_id: int, defaults: Defaults) -> Decision[Any, None]:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} isn't registered")
    records: list[Any] = leave_isr(image, broker_id, defaults)
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Decision(records, None)


def register_controller(
    image: ClusterImage,
    controller_id: int,
    incarnation_id: bytes,
    endpoints: Sequence[EndpointImage],
    features: Mapping[str, tuple[int, int]],
) -> Decision[Any, None]:
    """A controller names its endpoints and the features it supports."""
    if image.metadata_version < MV_3_7_IV0:
        return Decision([], None)
    record = RegisterControllerRecord(
        controller_id=controller_id,
        incarnation_id=incarnation_id,
        zk_migration_ready=False,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in endpoints
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in features.items()
        ],
    )
    return Decision([record], None)


def _check_directories(image: ClusterImage, registration: Registration) -> None:
    if image.metadata_version < MV_3_7_IV2:
        return
    dirs = registration.log_dirs
    if not dirs:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a broker registers at least one log directory")
    if len(set(dirs)) != len(dirs):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a log directory stands twice in the registration")
    taken = {d: b.id for b in image.brokers.values() for d in b.log_dirs if b.id != registration.broker_id}
    for directory in dirs:
        if int.from_bytes(directory) < RESERVED_DIRECTORIES_BELOW:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"directory id {uuid_text(directory)} is reserved")
        if directory in taken:
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION,
                f"directory {uuid_text(directory)} is registered by broker {taken[directory]} already",
            )


def _check_features(image: ClusterImage, registration: Registration) -> None:
    if METADATA_VERSION not in registration.features:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"the registration doesn't name {METADATA_VERSION}")
    for name, level in image.features.items():
        low, high = registration.features.get(name, (0, 0))
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {registration.broker_id} supports {name} from {low} to {high}, the cluster runs at {level}",
            )
