"""UpdateFeatures: the levels at which the cluster runs. All updates of a request succeed, or none."""

from typing import Any

from tidelog.controller.configs import MIN_INSYNC_REPLICAS
from tidelog.controller.leaders import Defaults
from tidelog.env.slices import Steps
from tidelog.machine.decision import Decision
from tidelog.metadata.image import BROKER_RESOURCE, ClusterImage
from tidelog.metadata.versions import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    MV_3_4_IV0,
    MV_3_6_IV1,
    MV_3_7_IV0,
    MV_3_7_IV2,
    MV_4_0_IV1,
    MV_4_3_IV0,
    MV_NAMES,
    SUPPORTED,
)
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.wire.records.metadata import ConfigRecord, FeatureLevelRecord

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3
UPDATES_A_STEP = 64

_RECORDS_CHANGED_AT = (MV_3_4_IV0, 11, MV_3_6_IV1, 14, MV_3_7_IV0, MV_3_7_IV2, MV_4_0_IV1, MV_4_3_IV0)
"""Levels of metadata.version that brought new records or fields: going below one could lose what they hold."""


def update_features(
    image: ClusterImage,
    request: UpdateFeaturesRequest,
    kraft_version: int,
    version: int,
    defaults: Defaults,
) -> Steps[Decision[Any, UpdateFeaturesResponse]]:
    """`kraft_version` is the quorum's; `version` the request's, since v0 says otherwise what a downgrade is."""
    records: list[Any] = []
    updates = {update.feature: update for update in request.feature_updates}  # of those of one feature the last counts
    proposed = {**image.features, **{name: update.max_version_level for name, update in updates.items()}}
    try:
        for number, update in enumerate(updates.values(), 1):
            if not number % UPDATES_A_STEP:
                yield
            kind = update.upgrade_type if version > 0 else SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
            records += _update(image, update, kind, kraft_version, proposed)
    except KafkaError as error:
        return Decision(
            [],
            UpdateFeaturesResponse(
                error_code=error.code,
                error_message=f"No feature was updated, since one of them could not be: {error.message}",
            ),
        )
    if any(update.feature == ELR_VERSION and update.max_version_level > 0 for update in updates.values()):
        records = [*_one_min_isr(image, defaults), *records]
    results = [UpdatableFeatureResult(feature=u.feature, error_message=None) for u in request.feature_updates]
    response = UpdateFeaturesResponse(error_message=None, results=results if version <= 1 else [])
    return Decision([] if request.validate_only else records, response)


def _one_min_isr(image: ClusterImage, defaults: Defaults) -> list[Any]:
    """Eligible leader replicas are reckoned from one min.insync.replicas for all brokers: it is written down where it
    wasn't, and brokers lose their own."""
    records: list[Any] = []
    if MIN_INSYNC_REPLICAS not in image.configs.get((BROKER_RESOURCE, ""), {}):
        records.append(min_isr_record("", str(defaults.min_insync_replicas)))
    for (kind, name), configs in image.configs.items():
        if kind == BROKER_RESOURCE and name and MIN_INSYNC_REPLICAS in configs:
            records.append(min_isr_record(name, None))
    return records


def min_isr_record(broker: str, value: str | None) -> ConfigRecord:
    """Of a broker; of all, where it has no name."""
    return ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=MIN_INSYNC_REPLICAS, value=value)


def _update(
    image: ClusterImage, update: FeatureUpdateKey, kind: int, kraft_version: int, proposed: dict[str, int]
) -> list[Any]:
    name, level = update.feature, update.max_version_level
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(name, level, f"There is no upgrade type {kind}.")
    current = kraft_version if name == KRAFT_VERSION else image.features.get(name, 0)
    if level < 0:
        raise _invalid(name, level, "A feature level is never below 0.")
    _check_supported(image, name, level)
    if level < current and kind == UPGRADE:
        raise _invalid(name, level, f"It is at {current}; going down needs a downgrade type.")
    if level > current and kind != UPGRADE:
        raise _invalid(name, level, f"It is at {current}; a downgrade can't raise it.")
    if name == METADATA_VERSION:
        return _update_metadata_version(current, level)
    if name == KRAFT_VERSION:
        if level != current:
            raise _invalid(name, level, f"It is at {current} and stays there.")
        return []
    if name == ELR_VERSION and level >= 1 and proposed.get(METADATA_VERSION, 0) < MV_4_0_IV1:
        raise _invalid(name, level, f"It needs {METADATA_VERSION} {MV_4_0_IV1}.")
    return [FeatureLevelRecord(name=name, feature_level=level)]


def _invalid(name: str, level: int, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{name} can't be set to {level}. {reason}")


def _check_supported(image: ClusterImage, name: str, level: int) -> None:
    if name not in SUPPORTED:  # also at 0, at which every feature is that nobody has
        raise _invalid(name, level, "There is no such feature.")
    supporters = [("This controller", SUPPORTED.get(name, (0, 0)))]
    supporters += [(f"Broker {b.id}", b.features.get(name, (0, 0))) for b in image.brokers.values()]
    supporters += [(f"Controller {c.id}", c.features.get(name, (0, 0))) for c in image.controllers.values()]
    for who, (low, high) in supporters:
        if not low <= level <= high:
            reason = f"{who} supports {low} to {high}." if high else f"{who} doesn't know this feature."
            raise _invalid(name, level, reason)


def _update_metadata_version(current: int, level: int) -> list[Any]:
    if level not in MV_NAMES:
        raise _invalid(METADATA_VERSION, level, f"Levels go from {min(MV_NAMES)} to {max(MV_NAMES)}.")
    if level < current and any(level < changed <= current for changed in _RECORDS_CHANGED_AT):
        raise _invalid(METADATA_VERSION, level, f"Going down from {current} could lose metadata.")
    return [FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)]
