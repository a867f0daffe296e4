"""The flags of `tidelog serve`, declared once: read here without click, and by click for help and completion."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flag:
    name: str
    value_name: str  # empty: a switch, without a value
    help: str
    many: bool = False
    hidden: bool = False


FLAGS = (
    Flag("--data", "DIR", "Folder that holds the log; made where it is missing.  [default: ./data]"),
    Flag("--listen", "HOST:PORT", "Address to serve on; port 0 takes a free one.  [default: 127.0.0.1:9092]"),
    Flag("--set", "NAME=VALUE", "A setting under Kafka's name; give it as often as you like.", many=True),
    Flag(
        "--config",
        "FILE",
        "Settings in TOML, or in a server.properties of Apache Kafka's; flags and TIDELOG_* variables win over it.",
    ),
    Flag("--log-level", "LEVEL", "What goes to stderr: debug, info, warning or error.  [default: info]"),
    Flag("--exit-with-stdin", "", "Exit at once when standard input closes (for tests).", hidden=True),
)


@dataclass(slots=True)
class Given:
    """The flags of one command line; None and empty mean that a flag was not given."""

    data: str | None = None
    listen: str | None = None
    set: tuple[str, ...] = ()
    config: str | None = None
    log_level: str | None = None
    exit_with_stdin: bool = False


def parse_plain(arguments: list[str]) -> Given | None:
    """The flags of a plain command line; None where a word is not understood, so that click can say what is wrong."""
    by_name = {flag.name: flag for flag in FLAGS}
    given = Given()
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        flag = by_name.get(name)
        if flag is None or (equals and not flag.value_name):
            return None
        if flag.value_name and not equals:
            following = next(words, None)
            if following is None or following in by_name:
                return None
            value = following
        _store(given, flag, value)
    return given


def _store(given: Given, flag: Flag, value: str) -> None:
    attribute = flag.name[2:].replace("-", "_")
    if flag.many:
        setattr(given, attribute, (*getattr(given, attribute), value))
    else:
        setattr(given, attribute, value if flag.value_name else True)
