"""What a controller writes first when it comes to lead: the bootstrap records of a new cluster, and the end of a
transaction that its predecessor left open."""

from collections.abc import Sequence
from typing import Any

from tidelog.controller.features import min_isr_record
from tidelog.controller.leaders import Defaults
from tidelog.machine.decision import Decision
from tidelog.metadata.image import ClusterImage
from tidelog.metadata.versions import DEFAULT_LEVELS, ELR_VERSION, METADATA_VERSION, MV_3_6_IV1
from tidelog.wire.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


def default_bootstrap() -> list[Any]:
    """What `bootstrap.checkpoint` of a new cluster holds: every feature at the level that Kafka 4.3 gives it."""
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in DEFAULT_LEVELS.items()]


def activation_records(image: ClusterImage, bootstrap: Sequence[Any], defaults: Defaults) -> Decision[Any, None]:
    records: list[Any] = []
    if image.before_transaction is not None:
        records.append(AbortTransactionRecord(reason="Controller failover"))
    if image.visible.metadata_version:
        return Decision(records, None)
    levels = {record.name: record.feature_level for record in bootstrap if isinstance(record, FeatureLevelRecord)}
    written: list[Any] = list(bootstrap)
    if levels.get(ELR_VERSION, 0) > 0:
        # Eligibility is reckoned from min.insync.replicas, so it must be one value for all brokers.
        written.append(min_isr_record("", str(defaults.min_insync_replicas)))
    if levels.get(METADATA_VERSION, 0) >= MV_3_6_IV1:
        written = [BeginTransactionRecord(name="Bootstrap records"), *written, EndTransactionRecord()]
    return Decision(records + written, None)
