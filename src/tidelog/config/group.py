"""Settings of groups of the consumer protocol (KIP-848): the broker's, and each group's own.

A group's own (`consumer.session.timeout.ms` and so on) are set while the broker runs, on a resource of type GROUP, and
fall back to the broker's (`group.consumer.session.timeout.ms`). The broker's bounds hold for both: what a client may
not set is refused; what an older configuration or Apache Kafka left outside of them is brought inside.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.config.setting import INT_MAX, ConfigError, Setting, Settings, Type, Value, integer, names

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig

GROUP_RESOURCE = 32
"""The type of the resource that a group's settings belong to."""
ASSIGNORS = ("uniform", "range")
POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


def _policy(default: str, doc: str) -> str:
    def check(given: str) -> str | None:
        return None if given.lower() in POLICIES else f"String must be one of (case insensitive): {', '.join(POLICIES)}"

    declared: Any = Setting(Type.STRING, default, doc, check=check)
    return declared


class ConsumerGroupSettings(Settings):
    """The broker's: bounds on what groups may set, and what holds where they set nothing."""

    group_consumer_assignment_interval_ms = integer(
        1000, "How long a group's assignment holds at least before the next is computed.", at_least=0, dynamic=True
    )
    group_consumer_assignors = names(
        ASSIGNORS,
        "The assignors that members may ask for; the first is taken where nobody asks.",
        one_of=ASSIGNORS,
        filled=True,
    )
    group_consumer_heartbeat_interval_ms = integer(5000, "How often members are told to send heartbeats.", at_least=1)
    group_consumer_max_assignment_interval_ms = integer(
        15_000, "The longest `consumer.assignment.interval.ms` that a group may set.", at_least=0
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        15_000, "The longest `consumer.heartbeat.interval.ms` that a group may set.", at_least=1
    )
    group_consumer_max_session_timeout_ms = integer(
        60_000, "The longest `consumer.session.timeout.ms` that a group may set.", at_least=1
    )
    group_consumer_max_size = integer(INT_MAX, "How many members a group may have.", at_least=1)
    group_consumer_migration_policy = _policy(
        "bidirectional",
        "Whether a group with members may move between the protocols: to the consumer protocol when such a member "
        "joins (upgrade), back when the last of them leaves (downgrade), both (bidirectional) or neither (disabled).",
    )
    group_consumer_min_assignment_interval_ms = integer(
        0, "The shortest `consumer.assignment.interval.ms` that a group may set.", at_least=0
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        5000, "The shortest `consumer.heartbeat.interval.ms` that a group may set.", at_least=1
    )
    group_consumer_min_session_timeout_ms = integer(
        45_000, "The shortest `consumer.session.timeout.ms` that a group may set.", at_least=1
    )
    group_consumer_regex_refresh_interval_ms = integer(
        600_000,
        "How often a group's regular expressions are matched again; new topics are noticed sooner.",
        at_least=10_000,
    )
    group_consumer_session_timeout_ms = integer(
        45_000, "After how long a member that isn't heard of is taken out of its group.", at_least=1
    )


class GroupConfig(Settings):
    """All settings of one group, each with its value."""

    consumer_assignment_interval_ms = integer(
        1000, "How long the group's assignment holds at least before the next is computed.", at_least=0
    )
    consumer_heartbeat_interval_ms = integer(5000, "How often members are told to send heartbeats.", at_least=1)
    consumer_session_timeout_ms = integer(
        45_000, "After how long a member that isn't heard of is taken out of the group.", at_least=1
    )


BROKER_SYNONYMS: Mapping[str, str] = {name: f"group.{name}" for name in GroupConfig.SETTINGS}
"""The broker's setting that a group's setting falls back to."""


class _Bounds(NamedTuple):
    """What the broker says about one of a group's settings."""

    least: int
    own: int
    most: int


def _bounds(broker: "BrokerConfig") -> dict[str, _Bounds]:
    """By the group's name for it."""
    return {
        "consumer.assignment.interval.ms": _Bounds(
            broker.group_consumer_min_assignment_interval_ms,
            broker.group_consumer_assignment_interval_ms,
            broker.group_consumer_max_assignment_interval_ms,
        ),
        "consumer.heartbeat.interval.ms": _Bounds(
            broker.group_consumer_min_heartbeat_interval_ms,
            broker.group_consumer_heartbeat_interval_ms,
            broker.group_consumer_max_heartbeat_interval_ms,
        ),
        "consumer.session.timeout.ms": _Bounds(
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        ),
    }


def _bounding(name: str, which: str) -> str:
    """The broker's setting that bounds a group's: "min" or "max"."""
    return f"group.consumer.{which}.{name.removeprefix('consumer.')}"


def resolve_group(overrides: Mapping[str, str] | None, broker: "BrokerConfig") -> GroupConfig:
    """What holds for a group that sets `overrides`. Names that aren't known, and what isn't a value, are passed over:
    another version may have written them."""
    values: dict[str, Value] = {}
    for name, bounds in _bounds(broker).items():
        setting, value = GroupConfig.SETTINGS[name], bounds.own
        given = None if overrides is None else overrides.get(name)
        if given is not None:
            try:
                parsed = setting.parse(given)
            except ConfigError:
                parsed = None
            if isinstance(parsed, int):
                value = min(max(parsed, bounds.least), bounds.most)
        values[setting.attribute] = value
    return GroupConfig(values)


def check_group(overrides: Mapping[str, str], broker: "BrokerConfig") -> None:
    """Refuse, with ConfigError, what a client may not set on a group."""
    for name, given in overrides.items():
        setting = GroupConfig.SETTINGS.get(name)
        if setting is None:
            raise ConfigError(name, f"Unknown group config name: {name}")
        value = setting.parse(given)
        assert isinstance(value, int)
        bounds = _bounds(broker)[name]
        if value < bounds.least:
            raise ConfigError(name, f"{name} must be greater than or equal to {_bounding(name, 'min')}")
        if value > bounds.most:
            raise ConfigError(name, f"{name} must be less than or equal to {_bounding(name, 'max')}")
    config = resolve_group(overrides, broker)
    if config.consumer_session_timeout_ms <= config.consumer_heartbeat_interval_ms:
        raise ConfigError(
            "consumer.session.timeout.ms",
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
        )


def check_consumer_groups(broker: "BrokerConfig") -> None:
    """What must hold between the broker's settings."""
    for name, bounds in _bounds(broker).items():
        own, least, most = BROKER_SYNONYMS[name], _bounding(name, "min"), _bounding(name, "max")
        if bounds.most < bounds.least:
            raise ConfigError(most, f"{most} must be greater than or equal to {least}")
        if bounds.own < bounds.least:
            raise ConfigError(own, f"{own} must be greater than or equal to {least}")
        if bounds.own > bounds.most:
            raise ConfigError(own, f"{own} must be less than or equal to {most}")
    if broker.group_consumer_heartbeat_interval_ms >= broker.group_consumer_session_timeout_ms:
        raise ConfigError(
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        )
