"""Where a node's controllers are, and what its roles ask of its other settings: the rules of KRaft in Kafka 4.3."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tidelog.config.listeners import Listener, is_loopback
from tidelog.config.setting import ConfigError

BOOTSTRAP = "controller.quorum.bootstrap.servers"
VOTERS = "controller.quorum.voters"
INTER_BROKER = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"

Address: TypeAlias = tuple[str, int]


def parse_bootstrap(given: Sequence[str]) -> tuple[Address, ...]:
    """The addresses of `controller.quorum.bootstrap.servers`."""
    return tuple(_address(BOOTSTRAP, entry, entry, "HOST:PORT, as in localhost:9093") for entry in given)


def parse_voters(given: Sequence[str]) -> tuple[tuple[int, str, int], ...]:
    """(node id, host, port) of each entry of `controller.quorum.voters`."""
    shape = "ID@HOST:PORT, as in 1@localhost:9093"
    voters: dict[int, tuple[int, str, int]] = {}
    for entry in given:
        id_text, at, address = entry.partition("@")
        if not (at and id_text.isascii() and id_text.isdecimal() and int(id_text) < 2**31):
            raise ConfigError.bad_value(VOTERS, entry, f"each entry is written {shape}")
        id = int(id_text)
        if id in voters:
            raise ConfigError.bad_value(VOTERS, ",".join(given), f"node {id} stands there twice")
        voters[id] = (id, *_address(VOTERS, entry, address, shape))
        if voters[id][1] in ("0.0.0.0", "::"):
            raise ConfigError.bad_value(VOTERS, entry, "others can't connect to a wildcard address: name the host")
    return tuple(voters.values())


def _address(setting: str, entry: str, text: str, shape: str) -> Address:
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (host and colon and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ConfigError.bad_value(setting, entry, f"each entry is written {shape}")
    return host, int(port)


def advertise_controllers(
    listeners: tuple[Listener, ...], advertised: Iterable[Listener], own_voter: tuple[int, str, int] | None
) -> tuple[Listener, ...]:
    """Where others reach each controller listener: `advertised.listeners`, this node's own entry in
    `controller.quorum.voters`, or the listener itself; without a host that is this machine only."""
    told = {listener.name: listener for listener in advertised}
    reached: list[Listener] = []
    for listener in listeners:
        if listener.name in told:
            reached.append(told[listener.name])
        elif own_voter is not None and own_voter[2] == listener.port and listener.is_wildcard:
            reached.append(replace(listener, host=own_voter[1]))
        elif listener.host in ("0.0.0.0", "::"):
            raise ConfigError.bad_value(
                "listeners",
                str(listener),
                "every address of this machine is listened on, so other nodes must be told which to use: add "
                f"{listener.name}://<host that they reach>:{listener.port} to advertised.listeners",
            )
        else:
            reached.append(replace(listener, host=listener.host or "localhost"))
    return tuple(reached)


def bind_controllers(listeners: tuple[Listener, ...], advertised: tuple[Listener, ...]) -> tuple[Listener, ...]:
    """The addresses to listen on. Without a host it is this machine only, since nobody who comes there has to say who
    they are yet; unless other machines are told to come."""
    return tuple(
        replace(listener, host=listener.host or ("localhost" if is_loopback(public.host) else "0.0.0.0"))
        for listener, public in zip(listeners, advertised, strict=True)
    )


def choose_inter_broker(advertised: Sequence[Listener], named: str | None, protocol: str | None) -> Listener:
    """The listener that other brokers connect to: the one that is named, the one named after the protocol, the first.

    `protocol` is None where `security.inter.broker.protocol` isn't set; both together are refused, as in Kafka.
    """
    if not advertised:
        raise ConfigError("advertised.listeners", "advertised.listeners names none of the listeners for clients")
    if named is not None and protocol is not None:
        raise ConfigError(INTER_BROKER, f"Only one of {INTER_BROKER} and {INTER_BROKER_PROTOCOL} may be set")
    for listener in advertised:
        if listener.name == (named or protocol or "PLAINTEXT").upper():
            return listener
    if named is not None or protocol is not None:
        setting, value = (INTER_BROKER, named) if named is not None else (INTER_BROKER_PROTOCOL, protocol)
        known = ", ".join(listener.name for listener in advertised)
        raise ConfigError.bad_value(setting, value, f"brokers advertise no listener of that name, only {known}")
    return advertised[0]


def check_roles(
    node_id: int,
    roles: Sequence[str],
    listeners: tuple[Listener, ...],
    controller_listeners: tuple[Listener, ...],
    voter_ids: Iterable[int],
    *,
    names: Sequence[str],
    has_quorum: bool,
) -> None:
    """What `process.roles` asks for. `listeners` are those for clients; `has_quorum`: whether controllers are named.

    A node of both roles that names no controllers is a cluster of one, and needs no listener for them.
    """
    voters = set(voter_ids)
    listed = ", ".join(map(str, sorted(voters)))
    if "broker" in roles and not listeners:
        raise ConfigError.bad_value(
            "listeners",
            ",".join(map(str, controller_listeners)),
            "at least one listener must be for clients, not for controllers",
        )
    if "controller" not in roles:
        _check_broker_only(node_id, controller_listeners, voters, names=names, has_quorum=has_quorum)
        return
    if "broker" not in roles and listeners:
        raise ConfigError.bad_value(
            "listeners",
            ",".join(map(str, listeners)),
            f"a node that is only a controller has no listeners for clients: set listeners={names[0]}://<host>:9093"
            if names
            else "controller.listener.names must name the listeners of a controller",
        )
    if voters and node_id not in voters:
        raise ConfigError.bad_value(VOTERS, listed, f"a controller must be one of the voters, and node.id is {node_id}")
    have = {listener.name for listener in controller_listeners}
    missing = [name for name in names if name not in have]
    if (missing or not names) and (has_quorum or "broker" not in roles):
        raise ConfigError.bad_value(
            "controller.listener.names",
            ",".join(names),
            "a controller that others are to reach has each of these in listeners, "
            f"for example {missing[0] if missing else 'CONTROLLER'}://localhost:9093; a node that is to be no "
            "controller has process.roles=broker",
        )


def _check_broker_only(
    node_id: int,
    controller_listeners: tuple[Listener, ...],
    voters: set[int],
    *,
    names: Sequence[str],
    has_quorum: bool,
) -> None:
    if not has_quorum:
        raise ConfigError(
            BOOTSTRAP,
            f"A node that is only a broker (process.roles=broker) needs controllers: set {BOOTSTRAP}, or {VOTERS}",
        )
    if not names:
        raise ConfigError(
            "controller.listener.names",
            "controller.listener.names must name the controllers' listener, also on a node that is only a broker",
        )
    if controller_listeners:
        raise ConfigError.bad_value(
            "listeners",
            str(controller_listeners[0]),
            "a node that is only a broker has no listener of controller.listener.names: leave it out",
        )
    if node_id in voters:
        raise ConfigError.bad_value(
            VOTERS,
            ", ".join(map(str, sorted(voters))),
            f"node {node_id} is only a broker (process.roles=broker), so it can't be one of the voters",
        )
