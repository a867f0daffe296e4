"""The topics that the coordinators keep their state in: made when first needed, before a coordinator is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.controller.leaders import InternalTopic
from tidelog.coordinator.placement import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig

BROKERS_DEFAULT = -1
OFFSETS_REPLICATION = "offsets.topic.replication.factor"
STATE_REPLICATION = "transaction.state.log.replication.factor"
STATE_MIN_ISR = "transaction.state.log.min.isr"


def creatable(name: str, config: BrokerConfig, brokers: int) -> CreatableTopic:
    """What to make when a topic of this name is needed; `brokers` is how many there are to hold replicas.

    The replication of internal topics is 3 in Kafka, which one broker can't give: where it isn't set, it is at most the
    number of brokers (docs/differences.md), and the controller adds replicas as brokers come.
    """
    if name == CONSUMER_OFFSETS:
        return CreatableTopic(
            name=name,
            num_partitions=config.offsets_topic_num_partitions,
            replication_factor=_within(config, OFFSETS_REPLICATION, brokers),
            configs=_configs(
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                }
            ),
        )
    if name == TRANSACTION_STATE:
        replication = _within(config, STATE_REPLICATION, brokers)
        return CreatableTopic(
            name=name,
            num_partitions=config.transaction_state_log_num_partitions,
            replication_factor=replication,
            configs=_configs(
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(_within(config, STATE_MIN_ISR, replication)),
                    "segment.bytes": str(config.transaction_state_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                }
            ),
        )
    return CreatableTopic(name=name, num_partitions=BROKERS_DEFAULT, replication_factor=BROKERS_DEFAULT)


def unset_replication(config: BrokerConfig) -> tuple[InternalTopic, ...]:
    """Those whose replicas nobody set, and that the controller gives more as brokers come."""
    topics: list[InternalTopic] = []
    if not config.is_given(OFFSETS_REPLICATION):
        topics.append(InternalTopic(CONSUMER_OFFSETS, config.offsets_topic_replication_factor))
    if not config.is_given(STATE_REPLICATION):
        min_isr = 0 if config.is_given(STATE_MIN_ISR) else config.transaction_state_log_min_isr
        topics.append(InternalTopic(TRANSACTION_STATE, config.transaction_state_log_replication_factor, min_isr))
    return tuple(topics)


def _within(config: BrokerConfig, name: str, at_most: int) -> int:
    value = config.value(name)
    assert isinstance(value, int)
    return value if config.is_given(name) else max(1, min(value, at_most))


def _configs(values: dict[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value) for name, value in values.items()]
