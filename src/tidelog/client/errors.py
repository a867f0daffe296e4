"""One error for everything that goes wrong on the way to a broker, with a hint at what to do next."""

import socket
from collections.abc import Iterable
from difflib import get_close_matches

from confluent_kafka import KafkaError, KafkaException

from tidelog.rpc.cluster import Cluster
from tidelog.rpc.errors import Lost, Unsupported
from tidelog.rpc.options import Options
from tidelog.wire.errors import KafkaError as WireKafkaError

PROBE_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 3.0
NO_BROKER = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)

NOT_FOR_CLIENTS = (
    "that may be the listener of a controller, which serves other nodes only: name a broker's listener for clients "
    "with --bootstrap"
)


class ClientError(Exception):
    """What failed, and, where there is something to do about it, what."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def nobody_answers(bootstrap: str) -> ClientError:
    """For a question without an answer: whether nobody listens there, somebody does and says nothing, or that one would
    answer, and waits for others."""
    if not accepts(bootstrap, PROBE_TIMEOUT_S):
        return no_broker(bootstrap)
    if _answers(bootstrap):
        return ClientError(
            f"the broker at {bootstrap} answers, but somebody else who is needed for this does not: another broker, or "
            "the active controller",
            "`tidelog status` says who isn't there",
        )
    return ClientError(
        f"the broker at {bootstrap} accepts connections, but does not answer",
        "it may be stopped, overloaded, or no broker at all: look at its process, and at its log",
    )


def accepts(bootstrap: str, timeout_s: float) -> bool:
    """Whether one of these addresses can be connected to."""
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port or 0)), timeout_s).close()
        except (OSError, ValueError, OverflowError):
            continue
        return True
    return False


def _answers(bootstrap: str) -> bool:
    """Whether one of these says who is in the cluster, which each knows without asking others."""
    options = Options(
        connect_timeout_s=PROBE_TIMEOUT_S, request_timeout_s=ANSWER_TIMEOUT_S, patience_s=ANSWER_TIMEOUT_S
    )
    try:
        with Cluster(bootstrap, options) as cluster:
            return bool(cluster.broker_addresses())
    except (Lost, WireKafkaError, Unsupported, ValueError, OSError):
        return False


def no_broker(bootstrap: str) -> ClientError:
    return ClientError(
        f"no broker answers at {bootstrap}",
        "start one with `tidelog serve`, or name the right address with --bootstrap",
    )


def unknown_topic(name: str, known: Iterable[str]) -> ClientError:
    """With the nearest name of those that there are."""
    close = get_close_matches(name, list(known), n=1)
    return ClientError(
        f"there is no topic {name}{f': did you mean {close[0]}?' if close else ''}",
        "`tidelog topic list` shows the topics there are, `tidelog topic create` makes one",
    )


def from_kafka(error: KafkaError | KafkaException, bootstrap: str, doing: str) -> ClientError:
    """The ClientError for an error of confluent-kafka's; `doing` says what was tried, as in "create topic t"."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(cause, KafkaError):
        return ClientError(f"cannot {doing}: {error}")
    if cause.code() in NO_BROKER:
        return nobody_answers(bootstrap)
    return ClientError(f"cannot {doing}: {cause.name()}: {cause.str()}", _hint(cause))


def _hint(error: KafkaError) -> str | None:
    if error.code() == KafkaError._UNSUPPORTED_FEATURE:
        return NOT_FOR_CLIENTS
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return "`tidelog topic list` shows the topics there are, `tidelog topic create` makes one"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return "raise the topic's max.message.bytes with `tidelog topic alter`, or send smaller messages"
    return None
