"""What holds for one group: the broker's settings, and the group's own where it has some."""

from typing import NamedTuple

from tidelog.config.broker import BrokerConfig
from tidelog.config.group import GROUP_RESOURCE, resolve_group
from tidelog.metadata.image import ClusterImage


class Terms(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    members_max: int
    assignors: tuple[str, ...]
    """By name; the first is taken where no member asks for one."""
    regex_refresh_interval_ms: int
    may_upgrade: bool
    may_downgrade: bool
    classic_members_max: int


def terms_of(group_id: str, config: BrokerConfig, image: ClusterImage) -> Terms:
    policy = config.group_consumer_migration_policy.lower()
    own = resolve_group(image.configs.get((GROUP_RESOURCE, group_id)), config)
    return Terms(
        own.consumer_session_timeout_ms,
        own.consumer_heartbeat_interval_ms,
        own.consumer_assignment_interval_ms,
        config.group_consumer_max_size,
        config.group_consumer_assignors,
        config.group_consumer_regex_refresh_interval_ms,
        policy in ("bidirectional", "upgrade"),
        policy in ("bidirectional", "downgrade"),
        config.group_max_size,
    )
