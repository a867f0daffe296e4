"""BrokerHeartbeat: what a broker asks for, and what becomes of it. As Kafka decides it (KIP-631).

    FENCED --wants in, caught up--> UNFENCED --wants to stop--> CONTROLLED_SHUTDOWN --leads nothing--> may stop
       ^------------- wants to be fenced, or falls silent -------------+---------------------+

A broker is let in only when it has come to its own registration in the metadata: before, it might act on what was said
of its former self. One that wants to stop may go when no partition is led by it, and every active broker knows so; at
once, where it leads none.

Directories that went offline are dealt with first, and by themselves: what else the broker asks for is decided with its
next heartbeat, on the image in which others lead what was there. Where none is left, it is fenced.
"""

from dataclasses import dataclass, replace
from typing import Any

from tidelog.controller import brokers, directories
from tidelog.controller.leaders import Defaults
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.image import BrokerImage, ClusterImage
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records.nodes import BrokerRegistrationChangeRecord


@dataclass(frozen=True, slots=True)
class Heartbeat:
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shutdown: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    """They take no new replicas; None: the broker doesn't say."""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


def check_sender(image: ClusterImage, broker_id: int, epoch: int) -> BrokerImage:
    """The broker, if the heartbeat is of its present incarnation: an old self neither keeps it alive nor fences it.
    One that nobody knows has no epoch, so that any is stale.
    """
    if broker_id not in image.brokers:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} isn't registered")
    return brokers.check_epoch(image, broker_id, epoch)


def heartbeat(
    image: ClusterImage,
    given: Heartbeat,
    defaults: Defaults,
    lowest_active_offset: int,
    moved_offset: int | None = None,
) -> Steps[Decision[Any, HeartbeatAnswer]]:
    """`lowest_active_offset` is how far every active broker has come (`Heartbeats.lowest_metadata_offset`),
    `moved_offset` by which offset one that stops had handed over what it led (`Heartbeats.moved_by`), if it is known.
    """
    broker = check_sender(image, given.broker_id, given.broker_epoch)
    caught_up = given.metadata_offset >= broker.epoch
    failed = directories.newly_offline(image, broker, given.offline_log_dirs)
    if failed and len(failed) < len(broker.log_dirs):
        records = yield from directories.offline(image, broker, failed, defaults)
        return Decision(records, HeartbeatAnswer(caught_up, broker.fenced, should_shut_down=False))
    if failed:
        given = replace(given, want_fence=True)
    records, answer = yield from _decide(image, broker, given, defaults, lowest_active_offset, moved_offset)
    cordoned = directories.cordoned(image, broker, given.cordoned_log_dirs)
    return Decision([*records, *cordoned], answer)


def _decide(
    image: ClusterImage,
    broker: BrokerImage,
    given: Heartbeat,
    defaults: Defaults,
    lowest_active_offset: int,
    moved_offset: int | None,
) -> Steps[Decision[Any, HeartbeatAnswer]]:
    caught_up = given.metadata_offset >= broker.epoch
    if broker.fenced:
        if given.want_shutdown:
            return Decision([], HeartbeatAnswer(caught_up, is_fenced=True, should_shut_down=True))
        if given.want_fence or not caught_up:
            return Decision([], HeartbeatAnswer(caught_up, is_fenced=True, should_shut_down=False))
        records, _ = yield from brokers.unfence(image, broker.id, broker.epoch, defaults)
        return Decision(records, HeartbeatAnswer(caught_up, is_fenced=False, should_shut_down=False))
    if given.want_fence and not given.want_shutdown:
        records, _ = yield from brokers.fence(image, broker.id, broker.epoch, defaults)
        return Decision(records, HeartbeatAnswer(caught_up, is_fenced=True, should_shut_down=False))
    if given.want_shutdown and not broker.in_controlled_shutdown and not brokers.leads(image, broker.id):
        records, _ = yield from brokers.fence(image, broker.id, broker.epoch, defaults)
        return Decision(records, HeartbeatAnswer(caught_up, is_fenced=True, should_shut_down=True))
    if given.want_shutdown or broker.in_controlled_shutdown:
        seen = lowest_active_offset >= (image.offset if moved_offset is None else moved_offset)
        return (yield from _shut_down(image, broker, caught_up, defaults, seen_by_all=seen))
    return Decision([], HeartbeatAnswer(caught_up, is_fenced=False, should_shut_down=False))


def _shut_down(
    image: ClusterImage, broker: BrokerImage, caught_up: bool, defaults: Defaults, *, seen_by_all: bool
) -> Steps[Decision[Any, HeartbeatAnswer]]:
    """Leaders move first. When nothing is left to move, and all who are active have seen it moved, it is fenced and
    may stop. What nobody else has stays with it: waiting would not help."""
    records, _ = yield from brokers.controlled_shutdown(image, broker.id, broker.epoch, defaults)
    others = any(other.active for other in image.brokers.values() if other.id != broker.id)
    if records and (others or not broker.in_controlled_shutdown):
        return Decision(records, HeartbeatAnswer(caught_up, is_fenced=False, should_shut_down=False))
    if others and not seen_by_all:
        return Decision([], HeartbeatAnswer(caught_up, is_fenced=False, should_shut_down=False))
    fenced = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=1)
    return Decision([*records, fenced], HeartbeatAnswer(caught_up, is_fenced=True, should_shut_down=True))
