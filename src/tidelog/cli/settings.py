"""Settings of a broker, gathered from flags, TIDELOG_* variables and a file, in this order of precedence.

All three speak Kafka's names (`tidelog.config.environment` says how variables are spelt). `data` and `listen` are
short for `log.dirs` and `listeners`, in all three. The file is TOML, or a `server.properties` of Apache Kafka's.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from tidelog.cli.serve_flags import Given
from tidelog.config.environment import PREFIX, environment_names
from tidelog.config.setting import ConfigError

DEFAULT_DATA = "./data"
DEFAULT_LISTEN = "127.0.0.1:9092"
OTHER_VARIABLES = frozenset(
    {"TIDELOG_CONFIG", "TIDELOG_BOOTSTRAP", "TIDELOG_LOG_LEVEL", "TIDELOG_LOG_FORMAT", "TIDELOG_KAFKA_JARS"}
)

SHORT_NAMES = {"data": "log.dirs", "listen": "listeners"}
SAME = {"data": ("log.dirs", "log.dir"), "listen": ("listeners",)}


def gather(given: Given, variables: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The settings under Kafka's names, and a warning for whatever is passed over.

    Raises ConfigError for a flag that isn't NAME=VALUE, a file that can't be read, and what contradicts itself.
    """
    settings: dict[str, str] = {"log.dirs": DEFAULT_DATA, "listeners": listeners(DEFAULT_LISTEN)}
    config_file = given.config or variables.get("TIDELOG_CONFIG")
    passed_over: list[str] = []
    if config_file:
        from_file, passed_over = _without_unused(read_file(config_file), config_file)
        _refuse_both(from_file, lambda name: name, f" in {config_file}")
        _merge(settings, from_file)
    from_variables, warnings = read_variables(variables)
    _refuse_both(from_variables, lambda name: PREFIX + name.upper().replace(".", "_"))
    _merge(settings, from_variables)
    flags = read_flags(given)
    _refuse_both(flags, lambda name: f"--{name}" if name in SHORT_NAMES else f"--set {name}")
    _merge(settings, flags)
    return settings, passed_over + warnings


def _refuse_both(values: Mapping[str, str], spelt: Callable[[str], str], where: str = "") -> None:
    """One of a source wins over another's, but what stands twice in one is a mistake of whoever wrote it."""
    for short, names in SAME.items():
        for name in names:
            if short in values and name in values:
                raise ConfigError(
                    name, f"{spelt(short)} and {spelt(name)}{where} are the same setting: give one of them"
                )


def read_flags(given: Given) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in given.set:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(pair, f"--set {pair}: expected NAME=VALUE, for example --set log.segment.bytes=1048576")
        values[name.strip()] = value.strip()
    if given.data is not None:
        values["data"] = given.data
    if given.listen is not None:
        values["listen"] = given.listen
    return values


def read_variables(variables: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    if not any(variable.startswith(PREFIX) for variable in variables):
        return {}, []
    names = {PREFIX + name.upper(): name for name in SHORT_NAMES} | environment_names()
    values: dict[str, str] = {}
    warnings: list[str] = []
    for variable, value in sorted(variables.items()):
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        if variable in names:
            values[names[variable]] = value
        else:
            warnings.append(f"the variable {variable} names no setting and is ignored")
    return values, warnings


def read_file(path: str) -> dict[str, str]:
    """The settings of a TOML file, or of one whose name ends in `.properties`. In TOML, `log.segment.bytes = 1` and
    `[log]` tables mean the same."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigError("config", f"cannot read the settings in {path}: {error.strerror}") from error
    if path.endswith(".properties"):
        from tidelog.cli.properties import parse_properties

        try:
            return parse_properties(data.decode())
        except ValueError as error:
            raise ConfigError("config", f"{path} is no file of properties: {error}") from error
    import tomllib

    try:
        tree = tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigError("config", f"{path} is not valid TOML: {error}") from error
    values: dict[str, str] = {}
    _flatten(tree, "", values)
    return values


def _without_unused(values: Mapping[str, str], path: str) -> tuple[dict[str, str], list[str]]:
    """The settings of a file that Tidelog has, and a warning that names those that only Apache Kafka has. ConfigError
    for one that somebody relies on."""
    from tidelog.config.unused import UNUSED, why_refused

    kept: dict[str, str] = {}
    unused: list[str] = []
    for name, value in values.items():
        why = why_refused(name, value)
        if why is not None:
            raise ConfigError(name, f"{path} asks for {name}: {why}; take it out if you don't need it")
        if name == "broker.id":
            if values.get("node.id", value) != value:
                raise ConfigError(name, f"broker.id and node.id in {path} are the same setting: give one of them")
            kept["node.id"] = value
        elif name in UNUSED:
            unused.append(name)
        else:
            kept[name] = value
    if not unused:
        return kept, []
    return kept, [f"{path} has settings of Apache Kafka's that change nothing in Tidelog: {', '.join(sorted(unused))}"]


def listeners(address: str) -> str:
    """Kafka's `listeners` for HOST:PORT; a value that already names a protocol stays as it is."""
    if "://" in address:
        return address
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError("listen", f"{address!r} is no address to listen on: expected HOST:PORT, as in 127.0.0.1:9092")
    return f"PLAINTEXT://{host}:{port}"


def _merge(settings: dict[str, str], more: Mapping[str, str]) -> None:
    for name, value in more.items():
        settings[SHORT_NAMES.get(name, name)] = listeners(value) if name == "listen" else value
        if name in ("data", "log.dirs"):
            settings.pop("log.dir", None)
        elif name == "log.dir":
            settings.pop("log.dirs", None)


def _flatten(tree: Mapping[str, Any], prefix: str, values: dict[str, str]) -> None:
    for name, value in tree.items():
        if isinstance(value, dict):
            _flatten(cast(dict[str, Any], value), f"{prefix}{name}.", values)
        elif isinstance(value, list):
            values[prefix + name] = ",".join(_text(item) for item in cast(list[object], value))
        else:
            values[prefix + name] = _text(value)


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
