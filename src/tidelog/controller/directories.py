"""The log directories of brokers: those that went offline, and those that take no new replicas (KIP-858, KIP-1066)."""

from collections.abc import Collection
from typing import Any

from tidelog.controller.brokers import active_in
from tidelog.controller.leaders import Defaults, change_leaders
from tidelog.env.slices import Steps
from tidelog.metadata.image import BrokerImage, ClusterImage, PartitionImage
from tidelog.metadata.versions import MV_3_7_IV2, MV_4_3_IV0
from tidelog.wire.records.nodes import BrokerRegistrationChangeRecord


def newly_offline(image: ClusterImage, broker: BrokerImage, offline: Collection[bytes]) -> frozenset[bytes]:
    """Of these directories those that the broker is registered with."""
    if image.metadata_version < MV_3_7_IV2:
        return frozenset()
    return frozenset(offline) & frozenset(broker.log_dirs)


def offline(image: ClusterImage, broker: BrokerImage, failed: frozenset[bytes], defaults: Defaults) -> Steps[list[Any]]:
    """Others lead what the broker led in directories that failed, and it leaves the ISR there. Some are left."""

    def in_failed(partition: PartitionImage) -> bool:
        return broker.id in partition.isr and directory_of(partition, broker.id) in failed

    records = yield from change_leaders(
        image, defaults, broker.id, in_failed, acceptable=active_in(image), leaving=broker.id
    )
    online = [directory for directory in broker.log_dirs if directory not in failed]
    assert online, "a record without directories would say that nothing changes"
    records.append(BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=online))
    return records


def cordoned(image: ClusterImage, broker: BrokerImage, directories: Collection[bytes] | None) -> list[Any]:
    """The broker says which of its directories take no new replicas, where that changed."""
    if directories is None or image.metadata_version < MV_4_3_IV0:
        return []
    known = [directory for directory in broker.log_dirs if directory in directories]
    if set(known) == set(broker.cordoned_log_dirs or ()):
        return []
    return [BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=known)]


def directory_of(partition: PartitionImage, broker_id: int) -> bytes | None:
    """Where the broker has its replica, so far as the metadata says."""
    if not partition.directories:
        return None
    return partition.directories[partition.replicas.index(broker_id)]
