"""Settings that all our uses of confluent-kafka share."""

import logging
from typing import Any

from tidelog.client.errors import accepts, no_broker

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
REQUEST_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
MESSAGE_BYTES_MAX = 1_000_000_000  # the library's own bound; the broker's max.message.bytes decides

_quiet = logging.getLogger("tidelog.client")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    """librdkafka's settings: its log lines are kept off the terminal, since errors come back as exceptions."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "tidelog",
        "logger": _quiet,
        "log_level": 2,
        "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
        "socket.connection.setup.timeout.ms": int(CONNECT_TIMEOUT_S * 1000),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def knock(bootstrap: str) -> None:
    """Raise ClientError at once where nobody listens: the library would go on trying, for minutes when it writes."""
    if not accepts(bootstrap, CONNECT_TIMEOUT_S):
        raise no_broker(bootstrap)
