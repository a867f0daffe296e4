"""The settings of Kafka's clients, `kafka.*` among options: which are honoured, have no effect, or are refused.

Every name of Java's consumer and producer is here. One that isn't is a mistake, and is told with what was meant:
an option that is misspelt and passed over is a default that nobody asked for.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from tidelog.rpc.options import KNOWN as REACHING

PREFIX = "kafka."
DOCS = "docs/pipelines/source.md"
ALIKE = 0.7
"""How much of a name must be there for it to be taken for another one."""

READING = frozenset({"isolation.level", "max.partition.fetch.bytes"})
WRITING = frozenset({"compression.type", "batch.size"})
SASL = "sasl."
"""How names begin that are refused all together, where brokers are reached."""

NO_EFFECT: Mapping[str, tuple[str, ...]] = {
    "nobody joins a group": (
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "auto.commit.interval.ms",
        "share.acknowledgement.mode",
        "share.acquire.mode",
    ),
    "how much comes at once is `max.partition.fetch.bytes`, from the leader, and checksums are always checked": (
        "fetch.min.bytes",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "client.rack",
        "check.crcs",
    ),
    "topics are what the query names": ("allow.auto.create.topics", "exclude.internal.topics"),
    "connections are made as they are needed; how long is tried is `default.api.timeout.ms`": (
        "client.dns.lookup",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.max.ms",
        "socket.connection.setup.timeout.max.ms",
        "retries",
        "delivery.timeout.ms",
        "max.block.ms",
    ),
    "metrics are Spark's": (
        "enable.metrics.push",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "auto.include.jmx.reporter",
    ),
    "what is written is acknowledged by all in-sync replicas, once each, in transactions of the sink's own": (
        "acks",
        "enable.idempotence",
        "max.in.flight.requests.per.connection",
        "transaction.timeout.ms",
        "transaction.two.phase.commit.enable",
    ),
    "how much is sent at once is `batch.size`": (
        "linger.ms",
        "buffer.memory",
        "max.request.size",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
    ),
    "compression is at its usual level": (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
    ),
    "TLS is Python's": (
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
        "ssl.truststore.password",
    ),
}
"""By why they have none: nothing that a query reads or writes is another for it."""

_OPENSSL = "TLS is OpenSSL's, with the protocols and ciphers that its configuration allows (TLS 1.2 at least)"
_FILES = "certificates are read from files: ssl.ca.location, ssl.certificate.location, ssl.key.location"
_BYTES = "keys and values are bytes, or text as UTF-8; Spark makes them into something else"
REFUSED: Mapping[str, str] = {
    "interceptor.classes": "they would change what is read or written",
    "config.providers": "no value is looked up elsewhere: give it itself",
    "security.providers": _OPENSSL,
    "ssl.cipher.suites": _OPENSSL,
    "ssl.enabled.protocols": _OPENSSL,
    "ssl.engine.factory.class": _OPENSSL,
    "ssl.protocol": _OPENSSL,
    "ssl.provider": _OPENSSL,
    "ssl.keystore.certificate.chain": _FILES,
    "ssl.keystore.key": _FILES,
    "ssl.truststore.certificates": _FILES,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "auto.offset.reset": "use startingOffsets instead",
    "enable.auto.commit": "offsets live in Spark's checkpoint",
    "transactional.id": "transactions are the sink's own; a batch has a jobId",
    "partitioner.class": "keys go where Java's producers send them; a column partition says otherwise",
    "partitioner.ignore.keys": "keys go where Java's producers send them; a column partition says otherwise",
}
"""Settings that a query would be another for, if they were passed over."""
WITHOUT_EFFECT = frozenset(name for names in NO_EFFECT.values() for name in names)
_LEVELS = ("gzip.level", "lz4.level", "zstd.level")
NUMBERS = (".ms", ".bytes", ".records", ".size", ".samples", ".memory", ".per.connection", "retries", *_LEVELS)
BOOLEANS = (".enable", ".crcs", ".push", ".reporter", ".topics", ".idempotence")
"""How names of settings without effect end whose values are such."""
TAKEN = frozenset({"bootstrap.servers", *REACHING, *READING, *WRITING, *WITHOUT_EFFECT})


def problems(given: Iterable[str], own: Mapping[str, str], refused: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the names of options, in lower case: each that isn't known or can't be taken.

    `own` are those of the source or the sink, as they are written, by their lower case; `refused` those that it knows
    and doesn't take, with why.
    """
    for name in given:
        client = name.removeprefix(PREFIX) if name.startswith(PREFIX) else None
        why = refused.get(name) if client is None else REFUSED.get(client)
        if why is not None:
            yield f"option {name} is not supported: {why}"
        elif name not in own and (client is None or not (client in TAKEN or client.startswith(SASL))):
            yield f"unknown option {name}; {_hint(name, own)}"


def problems_of_values(kafka: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the values of settings without effect: Kafka's clients refuse those, too."""
    for name, value in kafka.items():
        if name not in WITHOUT_EFFECT:
            continue
        if name.endswith(NUMBERS) and not re.fullmatch(r"[+-]?[0-9]+", value.strip()):
            yield f"option {PREFIX}{name}: {value!r} is no number"
        if name.endswith(BOOLEANS) and value.strip().lower() not in ("true", "false"):
            yield f"option {PREFIX}{name}: {value!r} is neither true nor false"


def problem_of_reaching(name: str) -> str | None:
    """What is wrong with a setting by which a pipeline's file says how brokers are reached; None where nothing is."""
    if name in REFUSED:
        return f"{name} is not supported: {REFUSED[name]}"
    if name == "isolation.level":
        return f"{name} is for sources: write committed = false there"
    if name in READING:
        return f"{name} is for sources: write it into their `options`, as kafka.{name}"
    if name in WRITING:
        return f"{name} is for sinks: write it into their `options`, as kafka.{name}"
    if name in TAKEN or name.startswith(SASL):
        return None
    close = get_close_matches(name, TAKEN, 1, ALIKE)
    return f"unknown setting {name}; " + (
        f"did you mean {close[0]}?" if close else f"{DOCS} lists those that there are"
    )


def _hint(name: str, own: Mapping[str, str]) -> str:
    """What was meant, as far as can be seen: a name with or without its prefix, or one that is spelt alike."""
    client = name.removeprefix(PREFIX)
    if name != client:
        meant = own.get(client) or _alike(client, {each: f"{PREFIX}{each}" for each in TAKEN})
    else:
        meant = f"{PREFIX}{name}" if name in TAKEN else _alike(name, own)
    return f"did you mean {meant}?" if meant else f"{DOCS} lists those that there are"


def _alike(name: str, known: Mapping[str, str]) -> str | None:
    close = get_close_matches(name, known, 1, ALIKE)
    return known[close[0]] if close else None
