"""All settings of a broker, put together; `BrokerConfig.parse` is the one way to make them.

A value comes, first found, from the broker's own dynamic settings (AlterConfigs on broker N), the cluster's dynamic
defaults (AlterConfigs on broker ""), what the broker was started with, the default. DescribeConfigs shows all four.
"""

from collections.abc import Mapping
from typing import ClassVar

from tidelog.config.classic_group import ClassicGroupSettings
from tidelog.config.cluster import (
    RACK_AWARE,
    IdentitySettings,
    InternalTopicSettings,
    QuorumSettings,
    ReplicaSettings,
    TopicSettings,
)
from tidelog.config.group import ConsumerGroupSettings, check_consumer_groups
from tidelog.config.listeners import (
    Listener,
    check_protocols,
    choose_advertised,
    is_loopback,
    parse_advertised,
    parse_listeners,
    parse_protocols,
)
from tidelog.config.network import NetworkSettings
from tidelog.config.offsets import OffsetSettings
from tidelog.config.roles import (
    Address,
    advertise_controllers,
    bind_controllers,
    check_roles,
    choose_inter_broker,
    parse_bootstrap,
    parse_voters,
)
from tidelog.config.setting import ConfigError, Setting, Value
from tidelog.config.storage import FolderSettings, LogSettings
from tidelog.config.topic import TopicConfig, topic_defaults
from tidelog.config.transactions import TransactionSettings

MINUTE_MS = 60_000
HOUR_MS = 3_600_000

UNITS: tuple[tuple[tuple[str, int], ...], ...] = (
    (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
)
"""Settings that say the same in different units, and what to multiply by; the first that is set counts."""

_UNITS_OF = {group[0][0]: group for group in UNITS}


class BrokerConfig(
    IdentitySettings,
    NetworkSettings,
    FolderSettings,
    LogSettings,
    TopicSettings,
    ReplicaSettings,
    QuorumSettings,
    InternalTopicSettings,
    ClassicGroupSettings,
    ConsumerGroupSettings,
    OffsetSettings,
    TransactionSettings,
):
    """What holds for a broker now, and where each value comes from."""

    SETTINGS: ClassVar[Mapping[str, Setting]]

    static: Mapping[str, str]
    """What the broker was started with, as text."""
    dynamic_default: Mapping[str, str]
    """What was set for all brokers while they run; only what is known and valid."""
    dynamic_own: Mapping[str, str]
    """What was set for this broker while it runs; only what is known and valid."""
    listener_list: tuple[Listener, ...]
    """`listeners`, parsed, without those of the controller; none where the node is only a controller."""
    advertised_list: tuple[Listener, ...]
    """The addresses that clients are told; a port of 0 stands for the port that the listener got."""
    controller_listener_list: tuple[Listener, ...]
    """The addresses that this node's controller listens on; none where it is only a broker, and there need be none in a
    cluster of one."""
    advertised_controller_list: tuple[Listener, ...]
    """Where other nodes reach each of `controller_listener_list`; a port of 0 stands for the port that it got."""
    bootstrap_controllers: tuple[Address, ...]
    """`controller.quorum.bootstrap.servers`, parsed: where a node asks for the controllers."""
    static_voters: tuple[tuple[int, str, int], ...]
    """`controller.quorum.voters`, parsed: (node id, host, port) of each."""
    _inter_broker: Listener | None
    topic_defaults: TopicConfig
    """What holds for a topic that sets nothing itself."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "BrokerConfig":
        """The settings that a broker is started with; ConfigError names the first that is unknown or wrong."""
        for name in given:
            if name not in cls.SETTINGS:
                raise _unknown(name)
        return cls._resolve(dict(given), {}, {})

    def with_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> "BrokerConfig":
        """What holds once `default` was set for all brokers and `own` for this one.

        Passed over is what this version doesn't know or can't take: the metadata may have been written by another.
        Where what is left contradicts itself, what the broker was started with holds.
        """
        try:
            return self._resolve(self.static, _usable(default), _usable(own))
        except ConfigError:
            return self._resolve(self.static, {}, {})

    def check_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Raises ConfigError unless these may be set while the broker runs; unknown names are let through."""
        for source in (default, own):
            for name, text in source.items():
                if name in self.SETTINGS:
                    self.SETTINGS[name].parse(text)
        self._resolve(self.static, _usable(default), _usable(own))

    @classmethod
    def _resolve(
        cls, static: Mapping[str, str], dynamic_default: Mapping[str, str], dynamic_own: Mapping[str, str]
    ) -> "BrokerConfig":
        values: dict[str, Value] = {setting.attribute: setting.default for setting in cls.SETTINGS.values()}
        for source in (static, dynamic_default, dynamic_own):
            for name, text in source.items():
                setting = cls.SETTINGS[name]
                values[setting.attribute] = setting.parse(text)
        config = cls(values)
        put = object.__setattr__
        put(config, "static", static)
        put(config, "dynamic_default", dynamic_default)
        put(config, "dynamic_own", dynamic_own)
        config._resolve_listeners()
        put(config, "topic_defaults", topic_defaults(config))
        config.check_relations()
        return config

    def in_topic_unit(self, name: str) -> Value:
        """The value that a topic falls back to when its synonym is `name`: milliseconds where there are hours too."""
        for unit, factor in _UNITS_OF.get(name, ()):
            value = self.value(unit)
            if isinstance(value, int):
                return -1 if value < 0 and name == "log.retention.ms" else value * factor
        return self.value(name)

    @property
    def folders(self) -> tuple[str, ...]:
        """The data folders: `log.dirs`, or `log.dir` where that isn't set. A controller alone needs none beside that of
        the metadata, where this is one of its own."""
        if self.metadata_log_dir and not self.is_broker:
            return (self.metadata_log_dir,)
        return self.log_dir if self.log_dirs is None else self.log_dirs

    @property
    def connection_limits(self) -> Mapping[str, int]:
        """`max.connections.per.ip.overrides` by address. ConfigError where it can't be read."""
        limits: dict[str, int] = {}
        for entry in filter(None, (part.strip() for part in self.max_connections_per_ip_overrides.split(","))):
            address, colon, count = entry.rpartition(":")
            if not colon or not address or not count.isdecimal():
                raise ConfigError.bad_value(
                    "max.connections.per.ip.overrides", entry, "write ADDRESS:COUNT, as in 127.0.0.1:200"
                )
            limits[address.strip("[]")] = int(count)
        return limits

    @property
    def metadata_folder(self) -> str:
        return self.metadata_log_dir or self.folders[0]

    def is_given(self, name: str) -> bool:
        """Whether someone set it, rather than its default holding."""
        return name in self.static or name in self.dynamic_default or name in self.dynamic_own

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def inter_broker_listener(self) -> Listener:
        """The listener that other brokers connect to, as it is advertised."""
        assert self._inter_broker is not None, "a node that is only a controller has none"
        return self._inter_broker

    @property
    def other_controllers(self) -> tuple[Address, ...]:
        """The controllers that this node is told of, but for itself: whom it asks about the cluster. None: it is on its
        own, whatever it was told of itself."""
        own = {(_one_name(listener.host), listener.port) for listener in self.advertised_controller_list}
        told = [
            *self.bootstrap_controllers,
            *((host, port) for id, host, port in self.static_voters if id != self.node_id),
        ]
        return tuple((host, port) for host, port in dict.fromkeys(told) if (_one_name(host), port) not in own)

    def _resolve_listeners(self) -> None:
        every = parse_listeners("listeners", self.listeners)
        names = [name.upper() for name in self.controller_listener_names]
        controller = tuple(one for one in every if one.name in names)
        clients = tuple(one for one in every if one not in controller)
        protocols = parse_protocols(self.listener_security_protocol_map)
        for one in controller:
            protocols.setdefault(one.name, "PLAINTEXT")
        check_protocols(every, protocols)
        advertised = parse_advertised(every, self.advertised_listeners)
        for_controllers = [one for one in advertised or () if one.name in names]
        for_clients = None if advertised is None else tuple(one for one in advertised if one.name not in names)
        put = object.__setattr__
        put(self, "bootstrap_controllers", parse_bootstrap(self.controller_quorum_bootstrap_servers))
        put(self, "static_voters", parse_voters(self.controller_quorum_voters))
        voter_ids = [id for id, _, _ in self.static_voters]
        has_quorum = bool(self.bootstrap_controllers or self.static_voters)
        check_roles(
            self.node_id, self.process_roles, clients, controller, voter_ids, names=names, has_quorum=has_quorum
        )
        own_voter = next((voter for voter in self.static_voters if voter[0] == self.node_id), None)
        reached = advertise_controllers(controller, for_controllers, own_voter)
        put(self, "listener_list", clients)
        put(self, "advertised_list", choose_advertised(clients, for_clients))
        put(self, "controller_listener_list", bind_controllers(controller, reached))
        put(self, "advertised_controller_list", reached)
        put(self, "_inter_broker", self._choose_inter_broker() if self.is_broker else None)

    def _choose_inter_broker(self) -> Listener:
        protocol = self.security_inter_broker_protocol if self.is_given("security.inter.broker.protocol") else None
        return choose_inter_broker(self.advertised_list, self.inter_broker_listener_name, protocol)

    def check_relations(self) -> None:
        """What must hold between settings."""
        check_consumer_groups(self)
        if self.controller_quorum_auto_join_enable and not self.is_controller:
            raise ConfigError.bad_value(
                "controller.quorum.auto.join.enable", "true", "only a controller joins: process.roles doesn't name it"
            )
        if self.replica_selector_class not in (None, RACK_AWARE):
            raise ConfigError.bad_value(
                "replica.selector.class",
                self.replica_selector_class,
                f"Tidelog runs no Java classes; {RACK_AWARE} is the one that it knows by name",
            )
        topic = self.topic_defaults
        if topic.retention_ms < 1 and topic.retention_ms != -1:
            raise ConfigError.bad_value(
                "log.retention.ms", topic.retention_ms, "Value must be -1 (unlimited) or at least 1"
            )
        if topic.segment_ms < 1:
            raise ConfigError.bad_value("log.roll.ms", topic.segment_ms, "Value must be at least 1")
        if topic.segment_jitter_ms < 0:
            raise ConfigError.bad_value("log.roll.jitter.ms", topic.segment_jitter_ms, "Value must be at least 0")
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError.bad_value(
                "queued.max.request.bytes",
                self.queued_max_request_bytes,
                f"Value must be at least socket.request.max.bytes ({self.socket_request_max_bytes})",
            )
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            raise ConfigError.bad_value(
                "replica.fetch.wait.max.ms",
                self.replica_fetch_wait_max_ms,
                f"Value must be no more than replica.lag.time.max.ms ({self.replica_lag_time_max_ms})",
            )
        if self.max_connections_per_ip == 0 and not self.max_connections_per_ip_overrides:
            raise ConfigError.bad_value(
                "max.connections.per.ip", 0, "0 needs exceptions in max.connections.per.ip.overrides"
            )


def _one_name(host: str) -> str:
    """The host, by one of its names where it has several."""
    return "localhost" if is_loopback(host) else host.lower()


def synonyms(name: str) -> tuple[str, ...]:
    """The broker's settings that say the same as `name`, in the order in which they count."""
    for group in UNITS:
        listed = tuple(unit for unit, _ in group)
        if name in listed and name != "log.flush.scheduler.interval.ms":
            return listed
    return (name,)


def _usable(given: Mapping[str, str]) -> dict[str, str]:
    usable: dict[str, str] = {}
    for name, text in given.items():
        setting = BrokerConfig.SETTINGS.get(name)
        if setting is None or not setting.dynamic:
            continue
        try:
            setting.parse(text)
        except ConfigError:
            continue
        usable[name] = text
    return usable


def _unknown(name: str) -> ConfigError:
    from tidelog.config.unused import UNUSED

    if name in UNUSED:
        return ConfigError(name, f"Unknown setting {name}: Apache Kafka has it, Tidelog doesn't use it; leave it out")
    if name in TopicConfig.SETTINGS:
        from tidelog.config.topic import BROKER_SYNONYMS

        broker_name = BROKER_SYNONYMS.get(name)
        hint = f"for all topics it is {broker_name}" if broker_name else "set it on the topic"
        return ConfigError(name, f"Unknown setting {name}: it is a topic's setting; {hint}")
    from difflib import get_close_matches

    close = get_close_matches(name, BrokerConfig.SETTINGS, n=1)
    hint = f"did you mean {close[0]}?" if close else "docs/settings.md lists all"
    return ConfigError(name, f"Unknown setting {name}: {hint}")
