"""Metadata records of the cluster as a whole: configs, features, quotas, producer ids, metadata transactions."""

from tidelog.wire.codec import f64, i8, i16, i32, i64, message, struct, wire


@message(key=4, versions="0", flexible="0+")
class ConfigRecord:
    resource_type: i8 = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


@message(key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    name: str = ""
    feature_level: i16 = 0


@struct
class EntityData:
    entity_type: str = ""
    entity_name: str | None = ""


@message(key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    entity: list[EntityData] = wire(factory=list)
    key: str = ""
    value: f64 = 0.0
    remove: bool = False


@message(key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    broker_id: i32 = 0
    broker_epoch: i64 = -1
    next_producer_id: i64 = 0


@message(key=20, versions="0", flexible="0+")
class NoOpRecord:
    pass


@message(key=23, versions="0", flexible="0+")
class BeginTransactionRecord:
    name: str | None = wire(default=None, tag=0)


@message(key=24, versions="0", flexible="0+")
class EndTransactionRecord:
    pass


@message(key=25, versions="0", flexible="0+")
class AbortTransactionRecord:
    reason: str | None = wire(default=None, tag=0)


@message(key=21, versions="0", flexible="0+")
class ZkMigrationStateRecord:
    zk_migration_state: i8 = 0
