"""Where brokers listen, as people write it: host:port, with commas in between."""

from typing import NamedTuple

ADDRESSES_MAX = 100


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def addresses(bootstrap: str) -> list[Address]:
    """The addresses in `bootstrap`; ValueError says which one is none."""
    found: list[Address] = []
    for text in bootstrap.split(","):
        part = text.strip()
        if not part:
            continue
        host, colon, port = part.rpartition(":")
        host = host.rpartition("://")[2].strip("[]")  # PLAINTEXT://host:port is what some configs hold
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is no address of a broker: write host:port, as in 127.0.0.1:9092")
        found.append(Address(host, int(port)))
    if not found:
        raise ValueError("no broker's address is given: write host:port, as in 127.0.0.1:9092")
    if len(found) > ADDRESSES_MAX:
        raise ValueError(f"{len(found)} addresses are given, {ADDRESSES_MAX} are the most")
    return found
