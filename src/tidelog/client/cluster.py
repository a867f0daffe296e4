"""A connection for questions that confluent-kafka has no words for; every failure is a ClientError."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from tidelog.client.connect import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S
from tidelog.client.errors import NOT_FOR_CLIENTS, ClientError, nobody_answers
from tidelog.rpc.address import addresses
from tidelog.rpc.cluster import Cluster
from tidelog.rpc.errors import Lost, Unreachable, Unsupported
from tidelog.rpc.options import Options
from tidelog.wire.errors import KafkaError


def reach(bootstrap: str, patience_s: float = REQUEST_TIMEOUT_S) -> Cluster:
    """To be closed. Nobody is asked yet; whoever is, has so long to answer."""
    options = Options(connect_timeout_s=CONNECT_TIMEOUT_S, request_timeout_s=patience_s, patience_s=patience_s)
    return Cluster(bootstrap, options)


@contextmanager
def connected(bootstrap: str, doing: str) -> Generator[Cluster]:
    """To be asked by `doing`, as in "describe topic t"; where nobody listens, that is told at once."""
    with client_errors(bootstrap, doing), reach(bootstrap) as cluster:
        cluster.any()
        yield cluster


def _no_hint(error: KafkaError) -> str | None:
    return None


@contextmanager
def client_errors(bootstrap: str, doing: str, hint: Callable[[KafkaError], str | None] = _no_hint) -> Generator[None]:
    """What brokers answered, or that none did, as a ClientError; `hint` says what to do about an answer."""
    try:
        yield
    except KafkaError as error:
        what = f"cannot {doing}: {error.code.name}: {error.message or ''}".rstrip(": ")
        raise ClientError(what, hint(error)) from error
    except Unsupported as error:
        raise ClientError(f"cannot {doing}: {error}", NOT_FOR_CLIENTS) from error
    except Lost as error:
        if str(error.address) in {str(address) for address in addresses(bootstrap)}:
            raise nobody_answers(bootstrap) from error
        raise ClientError(
            f"the broker at {bootstrap} tells clients to connect to {error.address}, where nobody answers: {error.why}",
            "a broker that ended is taken off the list within seconds: try again; where it runs, check "
            "advertised.listeners in its settings, and whether this machine can reach that address",
        ) from error
    except Unreachable as error:
        raise nobody_answers(bootstrap) from error
