"""The image as records: what a snapshot holds. Folding them into an empty image gives the same image again.

The order is Kafka's: features first, since `metadata.version` says how to read the rest.
"""

from collections.abc import Iterator
from typing import Any

from tidelog.metadata.image import BrokerImage, ClusterImage, ControllerImage, PartitionImage
from tidelog.metadata.versions import METADATA_VERSION
from tidelog.wire.records.cluster import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    ProducerIdsRecord,
)
from tidelog.wire.records.nodes import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from tidelog.wire.records.topics import PartitionRecord, TopicRecord


def image_records(image: ClusterImage) -> Iterator[Any]:
    """Everything the image holds; whatever an open transaction would add is left out."""
    image = image.visible
    features = dict(image.features)
    if METADATA_VERSION in features:
        yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=features.pop(METADATA_VERSION))
    for name, level in features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for controller in image.controllers.values():
        yield controller_record(controller)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for index, partition in enumerate(topic.partitions):
            yield partition_record(topic.id, index, partition)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    for entity, quotas in image.quotas.items():
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, quota in quotas.items():
            yield ClientQuotaRecord(entity=parts, key=key, value=quota, remove=False)
    if image.next_producer_id >= 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from image.acls.values()
    yield from image.scram.values()
    yield from image.tokens.values()


def partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
    )


def controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.endpoints
        ],
        features=[
            ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in controller.features.items()
        ],
    )
