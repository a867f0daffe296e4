"""Brokers come, go and come back: registration, fencing, unfencing, controlled shutdown.

A broker's epoch is the offset at which its registration was decided: it rises with every incarnation, so requests of an
old self are told apart. A broker is registered fenced; it leads nothing until it is unfenced.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.controller.assignments import RESERVED_DIRECTORIES_BELOW, default_directory
from tidelog.controller.leaders import Defaults, LostDirectories, change_leaders, elr_enabled
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.broker_replicas import replicas_of
from tidelog.metadata.directories import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from tidelog.metadata.image import NO_LEADER, BrokerImage, ClusterImage, ControllerImage, EndpointImage, PartitionImage
from tidelog.metadata.records import broker_record, controller_record
from tidelog.metadata.versions import METADATA_VERSION, MV_3_7_IV0, MV_3_7_IV2, MV_4_3_IV0
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.nodes import (
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
)
from tidelog.wire.uuids import uuid_text


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
    lost_given_up: bool = False
    """The operator gave the directories up that are missing (`tidelog.log.dirs.lost`)."""


def register(
    image: ClusterImage, registration: Registration, cluster_id: str, defaults: Defaults, *, has_session: bool = False
) -> Steps[Decision[Any, int]]:
    """Take a broker in, fenced; the answer is its epoch. A second request of the same incarnation keeps it.

    `has_session` says whether the id's registered incarnation is alive (`Heartbeats.has_session`): another one waits
    until it is fenced, so that two processes never act under one id.
    """
    if registration.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {registration.broker_id} is of cluster {registration.cluster_id}, this is cluster {cluster_id}",
        )
    _check_directories(image, registration)
    _check_features(image, registration)
    known = image.brokers.get(registration.broker_id)
    same = known is not None and known.incarnation_id == registration.incarnation_id
    if known is not None and not same and has_session:
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another incarnation of broker {known.id} has a session still: it is stopped, or fenced, first",
        )
    epoch = known.epoch if known is not None and same else image.offset + 1
    broker = BrokerImage(
        id=registration.broker_id,
        epoch=epoch,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        features=registration.features,
        rack=registration.rack,
        fenced=known.fenced if known is not None and same else True,
        in_controlled_shutdown=known.in_controlled_shutdown if known is not None and same else False,
        log_dirs=registration.log_dirs if image.metadata_version >= MV_3_7_IV2 else (),
    )
    records: list[Any] = []
    if not same:  # an id that was unregistered may stand in the partitions still; how it stopped, nobody knows
        clean = known is not None and known.epoch == registration.previous_epoch
        lost = None if known is None else _lost_directories(known, broker)
        if lost is not None and registration.lost_given_up:
            lost = replace(lost, given_up=True)
        records = yield from _came_back(image, broker.id, clean=clean, lost=lost, defaults=defaults)
    # The registration comes last: should the rest be cut off, the broker registers again and it is done again.
    records.append(broker_record(broker))
    return Decision(records, epoch)


def _lost_directories(before: BrokerImage, broker: BrokerImage) -> LostDirectories | None:
    """Where the broker's directories are others than those of its former self, whatever partitions name and it hasn't:
    also what failed before, and comes back as an empty one. Where none is left of what it had, what was never assigned
    to a directory is lost too: it can't be in one of these."""
    if not broker.log_dirs or set(before.log_dirs) == set(broker.log_dirs):
        return None
    return LostDirectories(
        broker.id,
        frozenset(broker.log_dirs),
        default_directory(broker),
        unassigned=bool(before.log_dirs) and set(before.log_dirs).isdisjoint(broker.log_dirs),
    )


def _came_back(
    image: ClusterImage, broker_id: int, *, clean: bool, lost: LostDirectories | None, defaults: Defaults
) -> Steps[list[Any]]:
    """The broker's former self is gone. Where it may have lost data, it is no longer eligible for anything; what was in
    directories that it no longer has is lost, whatever else it says."""
    eligible = elr_enabled(image)
    unclean = eligible and not clean
    return change_leaders(
        image,
        defaults,
        broker_id,
        lambda partition: (
            broker_id in partition.isr
            or (unclean and broker_id in partition.elr)
            or (lost is not None and lost.hold(partition))
        ),
        acceptable=active_in(image),
        leaving=NO_LEADER if unclean else broker_id,
        unclean=broker_id if unclean else NO_LEADER,
        reopening=NO_LEADER if clean else broker_id,
        lost=lost,
    )


def leave_isr(image: ClusterImage, broker_id: int, defaults: Defaults, *, for_good: bool = False) -> Steps[list[Any]]:
    return change_leaders(
        image,
        defaults,
        broker_id,
        lambda partition: broker_id in partition.isr,
        acceptable=active_in(image),
        leaving=broker_id,
        for_good=for_good,
    )


def leads(image: ClusterImage, broker_id: int) -> bool:
    """Whether it leads any partition: of those that it has a replica of."""
    return any(
        image.topics[name].partitions[i].leader == broker_id for name, of in replicas_of(image, broker_id) for i in of
    )


def active_in(image: ClusterImage, also: int = NO_LEADER) -> Callable[[int, PartitionImage], bool]:
    """Whether a replica may lead, as the image has it: its broker is active, or `also`, which is just being let in, and
    has the directory that the replica is assigned to."""
    brokers = image.brokers

    def acceptable(broker_id: int, partition: PartitionImage) -> bool:
        broker = brokers.get(broker_id)
        if broker is None or not (broker.active or broker_id == also):
            return False
        return is_directory_online(broker, partition)

    return acceptable


def is_directory_online(broker: BrokerImage, partition: PartitionImage) -> bool:
    """Whether the broker has the directory that its replica is assigned to. Unassigned, it may be in any of them."""
    if not partition.directories or not broker.log_dirs:
        return True
    return is_online(broker, partition.directories[partition.replicas.index(broker.id)])


def is_online(broker: BrokerImage, directory: bytes) -> bool:
    """Whether the broker has this directory; one that nobody chose yet is wherever there is room."""
    if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    return not broker.log_dirs or directory in broker.log_dirs


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


def unfence(image: ClusterImage, broker_id: int, epoch: int, defaults: Defaults) -> Steps[Decision[Any, None]]:
    """The broker has caught up: it may lead, and takes the partitions that wait for it."""
    broker = check_epoch(image, broker_id, epoch)
    if not broker.fenced:
        return Decision([], None)
    records: list[Any] = []
    if broker.cordoned_log_dirs is None and image.metadata_version >= MV_4_3_IV0:
        records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, cordoned_log_dirs=[]))
    records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=-1))
    records += yield from change_leaders(
        image,
        defaults,
        NO_LEADER,
        lambda partition: True,
        acceptable=active_in(image, also=broker_id),
    )
    return Decision(records, None)


def fence(image: ClusterImage, broker_id: int, epoch: int, defaults: Defaults) -> Steps[Decision[Any, None]]:
    """The broker is silent, or stopped: others lead what it led."""
    broker = check_epoch(image, broker_id, epoch)
    if broker.fenced:
        return Decision([], None)
    records = yield from leave_isr(image, broker_id, defaults)
    records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1))
    return Decision(records, None)


def controlled_shutdown(
    image: ClusterImage, broker_id: int, epoch: int, defaults: Defaults
) -> Steps[Decision[Any, None]]:
    """The broker wants to stop: it hands over what it leads, and then is fenced."""
    broker = check_epoch(image, broker_id, epoch)
    records: list[Any] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, in_controlled_shutdown=1)
        )
    records += yield from leave_isr(image, broker_id, defaults)
    return Decision(records, None)


def unregister(image: ClusterImage, broker_id: int, defaults: Defaults) -> Steps[Decision[Any, None]]:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} isn't registered")
    records = yield from leave_isr(image, broker_id, defaults, for_good=True)
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Decision(records, None)


def register_controller(
    image: ClusterImage,
    controller_id: int,
    incarnation_id: bytes,
    endpoints: Sequence[EndpointImage],
    features: Mapping[str, tuple[int, int]],
) -> Decision[Any, None]:
    """A controller names its endpoints and the features it supports. Who is known so already changes nothing:
    controllers ask again until they see the record, and each names its own when it comes to lead.
    """
    controller = ControllerImage(controller_id, incarnation_id, tuple(endpoints), features)
    if image.metadata_version < MV_3_7_IV0 or image.controllers.get(controller_id) == controller:
        return Decision([], None)
    return Decision([controller_record(controller)], None)


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
