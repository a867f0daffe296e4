"""How to reach brokers: deadlines, bounds and TLS, under the names of Kafka's clients. Small, and safe to pickle."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.rpc.errors import Unsupported

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

KNOWN = {
    "client.id",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "retry.backoff.ms",
    "security.protocol",
    "ssl.ca.location",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.certificate.location",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.endpoint.identification.algorithm",
}


@dataclass(frozen=True, slots=True)
class Options:
    """Deadlines in seconds. `patience_s` is how long one call goes on trying, across leaders that change."""

    client_id: str = "tidelog"
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    patience_s: float = 120.0
    unknown_topic_s: float = 5.0
    backoff_s: float = 0.1
    backoff_max_s: float = 1.0
    response_bytes_max: int = 256 * 1024 * 1024
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    check_hostname: bool = True

    @classmethod
    def from_kafka(cls, given: Mapping[str, str]) -> "Options":
        """Options from Kafka's names (both librdkafka's and Java's for TLS, with PEM files); others are passed over.

        Unsupported where the security that is asked for isn't there: connecting without it would be a surprise.
        """
        protocol = given.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise Unsupported(f"security.protocol={protocol}: it is one of {', '.join(PROTOCOLS)}")
        sasl = [f"security.protocol={protocol}"] if protocol.startswith("SASL") else []
        sasl += sorted(name for name in given if name.startswith("sasl."))
        if sasl:
            raise Unsupported(
                f"{sasl[0]}: SASL is not supported yet; use PLAINTEXT, or SSL with a client certificate "
                "(ssl.ca.location, ssl.certificate.location, ssl.key.location)"
            )
        for store in ("truststore", "keystore"):
            kind = given.get(f"ssl.{store}.type", "PEM").upper()
            if f"ssl.{store}.location" in given and kind != "PEM":
                raise Unsupported(f"ssl.{store}.type={kind}: only PEM files can be read; convert it with keytool")
        keystore = given.get("ssl.keystore.location")
        return cls(
            client_id=given.get("client.id", "tidelog"),
            connect_timeout_s=_seconds(given, "socket.connection.setup.timeout.ms", 10_000),
            request_timeout_s=_seconds(given, "request.timeout.ms", 30_000),
            patience_s=_seconds(given, "default.api.timeout.ms", 120_000),
            backoff_s=_seconds(given, "retry.backoff.ms", 100),
            tls=protocol == "SSL",
            ca_file=given.get("ssl.ca.location") or given.get("ssl.truststore.location"),
            cert_file=given.get("ssl.certificate.location") or keystore,
            key_file=given.get("ssl.key.location") or keystore,
            key_password=given.get("ssl.key.password") or given.get("ssl.keystore.password"),
            check_hostname=given.get("ssl.endpoint.identification.algorithm", "https") != "",
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """What wraps a socket; None without TLS."""
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.check_hostname
        if self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file, self.key_password)
        return context


def _seconds(given: Mapping[str, str], name: str, default_ms: int) -> float:
    text = given.get(name)
    if text is None:
        return default_ms / 1000
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise ValueError(f"{name}={text}: expected milliseconds, more than 0")
    return value / 1000
