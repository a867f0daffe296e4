"""Settings of topics, brokers, groups and loggers: asked for and changed, with the nearest name where one is wrong."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from tidelog.client.cluster import connected
from tidelog.client.errors import ClientError, unknown_topic
from tidelog.rpc.cluster import Cluster
from tidelog.rpc.connection import Connection
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Kind = Literal["topic", "broker", "group", "logger"]

KINDS: dict[Kind, int] = {"topic": 2, "broker": 4, "logger": 8, "group": 32}
ALL_BROKERS = "all"
DEFAULT_SOURCE = 5
SOURCES = {
    1: "topic",
    2: "broker, while it runs",
    3: "all brokers, while they run",
    4: "broker's start",
    DEFAULT_SOURCE: "default",
    6: "logger",
    8: "group",
}
SET, DELETE = 0, 1


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    value: str | None
    """None where it has none, or isn't told because it may be a secret."""
    source: str
    read_only: bool
    sensitive: bool
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source == SOURCES[DEFAULT_SOURCE]


def describe(bootstrap: str, kind: Kind, name: str | None) -> tuple[str, list[Entry]]:
    """The settings of something, by name, and whose they are: without a name the first broker's."""
    with connected(bootstrap, f"describe the settings of {kind} {name or ''}".rstrip()) as cluster:
        name, connection = _where(cluster, kind, name)
        return name, _describe(cluster, connection, kind, name)


def alter(
    bootstrap: str, kind: Kind, name: str, values: Mapping[str, str], unset: Iterable[str], *, dry_run: bool = False
) -> None:
    """Set and unset settings; the others stay. All, or none where one is wrong."""
    taken_back = list(unset)
    with connected(bootstrap, f"change the settings of {kind} {name}") as cluster:
        name, connection = _where(cluster, kind, name)
        like = next(iter(cluster.brokers()))[0] if kind == "broker" and not name else name
        known = {entry.name: entry for entry in _describe(cluster, connection, kind, str(like))}
        for each in (*values, *taken_back):
            _check(kind, each, known)
        changes = [AlterableConfig(name=each, config_operation=SET, value=value) for each, value in values.items()]
        changes += [AlterableConfig(name=each, config_operation=DELETE, value=None) for each in taken_back]
        resource = AlterConfigsResource(resource_type=KINDS[kind], resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry_run)
        [answer] = connection.ask(request, IncrementalAlterConfigsResponse).responses
        if answer.error_code:
            raise _refused(kind, name, answer.error_code, answer.error_message)


def _where(cluster: Cluster, kind: Kind, name: str | None) -> tuple[str, Connection]:
    """The resource's name, and whom to ask for it: a broker knows its own settings only."""
    if kind not in ("broker", "logger"):
        if not name:
            raise ClientError(f"which {kind}? Its name is missing")
        return name, cluster.any()
    brokers = {str(node_id): connection for node_id, connection in cluster.brokers()}
    if kind == "broker" and name == ALL_BROKERS:
        return "", cluster.any()
    wanted = name or min(brokers, key=int)
    if wanted not in brokers:
        raise ClientError(
            f"there is no broker {wanted}", f"brokers by their ids: {', '.join(sorted(brokers, key=int))}"
        )
    return wanted, brokers[wanted]


def _describe(cluster: Cluster, connection: Connection, kind: Kind, name: str) -> list[Entry]:
    resource = DescribeConfigsResource(resource_type=KINDS[kind], resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    [answer] = connection.ask(request, DescribeConfigsResponse).results
    if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise unknown_topic(name, cluster.topics())
    if answer.error_code:
        raise _refused(kind, name, answer.error_code, answer.error_message)
    return [
        Entry(
            each.name,
            each.value,
            SOURCES.get(each.config_source, "unknown"),
            each.read_only,
            each.is_sensitive,
            each.documentation,
        )
        for each in sorted(answer.configs, key=lambda each: each.name)
    ]


def _check(kind: Kind, name: str, known: Mapping[str, Entry]) -> None:
    entry = known.get(name)
    if entry is None:
        raise unknown_setting(kind, name, known)
    if entry.read_only and kind == "broker":
        raise ClientError(
            f"{name} can't be changed while the broker runs",
            "change it where the broker is started (`tidelog serve --set`, or its file), and restart it",
        )


def unknown_setting(kind: Kind, name: str, known: Iterable[str]) -> ClientError:
    close = get_close_matches(name, list(known), n=1)
    what = "logger" if kind == "logger" else f"setting of a {kind}"
    command = f"tidelog config get {kind}{' NAME' if kind in ('topic', 'group') else ''} --all"
    return ClientError(
        f"there is no {what} {name}{f': did you mean {close[0]}?' if close else ''}", f"`{command}` lists all"
    )


def _refused(kind: Kind, name: str, code: int, message: str | None) -> ClientError:
    return ClientError(f"{kind} {name or ALL_BROKERS}: {ErrorCode(code).name}: {message or ''}".rstrip(": "))
