"""Listener strings: `PLAINTEXT://host:port`, as `listeners` and `advertised.listeners` hold them."""

from dataclasses import dataclass

from tidelog.config.setting import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOLS = ("PLAINTEXT",)
WILDCARDS = ("", "0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    """Whether the name or address is this machine's own, for itself."""
    return host.lower() == "localhost" or host.startswith("127.") or host == "::1"


@dataclass(frozen=True, slots=True)
class Listener:
    """One address. `host` may be empty or 0.0.0.0 (every address of the machine), `port` 0 (a free one)."""

    name: str
    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        return self.host in WILDCARDS

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(setting: str, given: str) -> Listener:
    name, separator, address = given.partition("://")
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (name and separator and colon and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ConfigError.bad_value(
            setting, given, "a listener is written NAME://host:port, for example PLAINTEXT://127.0.0.1:9092"
        )
    if not name.replace("_", "").replace("-", "").isalnum():
        raise ConfigError.bad_value(setting, given, "a listener's name is made of letters, digits, - and _")
    return Listener(name.upper(), host, int(port))


def parse_listeners(setting: str, given: tuple[str, ...]) -> tuple[Listener, ...]:
    """All of them; no name and no port (but 0) twice."""
    listeners: list[Listener] = []
    for one in given:
        listener = parse_listener(setting, one)
        for other in listeners:
            if other.name == listener.name:
                raise ConfigError.bad_value(
                    setting, ",".join(given), f"the listener name {other.name} stands there twice"
                )
            if setting == "listeners" and other.port == listener.port != 0 and other.host == listener.host:
                raise ConfigError.bad_value(setting, ",".join(given), f"port {other.port} stands there twice")
        listeners.append(listener)
    return tuple(listeners)


def parse_protocols(given: str) -> dict[str, str]:
    """Listener name -> security protocol, from `listener.security.protocol.map`."""
    setting = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in given.split(","))):
        name, colon, protocol = pair.partition(":")
        if not colon or protocol.upper() not in PROTOCOLS:
            raise ConfigError.bad_value(
                setting, given, f"expected NAME:PROTOCOL pairs, PROTOCOL one of {', '.join(PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def check_protocols(listeners: tuple[Listener, ...], protocols: dict[str, str]) -> None:
    """Each listener has a protocol, and one that Tidelog serves."""
    for listener in listeners:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise ConfigError.bad_value(
                "listeners",
                str(listener),
                f"no security protocol is named for {listener.name}: "
                f"add {listener.name}:PLAINTEXT to listener.security.protocol.map",
            )
        if protocol not in SERVED_PROTOCOLS:
            raise ConfigError.bad_value(
                "listeners", str(listener), f"Tidelog doesn't serve {protocol} yet, only {', '.join(SERVED_PROTOCOLS)}"
            )


def parse_advertised(listeners: tuple[Listener, ...], given: tuple[str, ...] | None) -> tuple[Listener, ...] | None:
    """`advertised.listeners`, those of controllers too: each is one of `listeners`, at a host that others can reach."""
    if given is None:
        return None
    advertised = parse_listeners("advertised.listeners", given)
    known = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.is_wildcard:
            raise ConfigError.bad_value(
                "advertised.listeners",
                str(listener),
                "nobody can connect to a wildcard address: name the host that this node is reached by",
            )
        if listener.name not in known:
            raise ConfigError.bad_value(
                "advertised.listeners",
                str(listener),
                f"listeners has no {listener.name}, only {', '.join(sorted(known))}",
            )
    return advertised


def choose_advertised(listeners: tuple[Listener, ...], advertised: tuple[Listener, ...] | None) -> tuple[Listener, ...]:
    """What clients are told: `advertised.listeners`, or the listeners themselves where their host means one machine."""
    if advertised is not None:
        return advertised
    for listener in listeners:
        if listener.is_wildcard:
            raise ConfigError.bad_value(
                "listeners",
                str(listener),
                "every address of this machine is listened on, so clients must be told which to use: set "
                f"advertised.listeners={listener.name}://<host that clients reach>:{listener.port}",
            )
    return listeners
