"""What a request may ask for: how much, as it costs that many times a record's cost, in time and memory; and how many
replicas."""

from collections.abc import Mapping

from tidelog.config.topic import STORAGE
from tidelog.controller.bounds import CHANGES_MAX
from tidelog.wire.errors import ErrorCode, KafkaError


def check_changes(count: int, what: str) -> None:
    """POLICY_VIOLATION where a request asks for too many changes of a kind."""
    if count > CHANGES_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{count} {what} in one request; {CHANGES_MAX} are allowed: send several"
        )


def check_in_memory(topic: str, configs: Mapping[str, str], replicas: int) -> None:
    """A topic in memory has one replica: those of others would be empty after a restart, and still count as copies."""
    if replicas > 1 and configs.get(STORAGE) == "memory":
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Topic '{topic}' would have {replicas} replicas, and be kept in memory ({STORAGE}=memory): a broker that "
            f"restarts has nothing of it, so there is one replica, and no copy. Ask for one, or for {STORAGE}=disk.",
        )
