"""Where brokers listen, as people write it: host:port, with commas in between."""

import re
from typing import NamedTuple

ADDRESSES_MAX = 100
USUAL_PORT = 9092
EXAMPLE = f"127.0.0.1:{USUAL_PORT}"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def addresses(bootstrap: str) -> list[Address]:
    """The addresses in `bootstrap`; ValueError says which one is none."""
    parsed = [_address(part.strip()) for part in bootstrap.split(",") if part.strip()]
    if not parsed:
        raise ValueError(f"no broker's address is given: write host:port, as in {EXAMPLE}")
    if len(parsed) > ADDRESSES_MAX:
        raise ValueError(f"{len(parsed)} addresses are given, {ADDRESSES_MAX} are the most")
    return parsed


def _address(text: str) -> Address:
    address = text.rpartition("://")[2]  # PLAINTEXT://host:port is what some configs hold
    match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^:\[\]/\s]+)):([0-9]{1,5})", address)
    if match and 0 < int(match[3]) < 65536:
        return Address(match[1] or match[2], int(match[3]))
    if re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+", address.removesuffix(":")):
        raise ValueError(
            f"{text!r} has no port: write {address.removesuffix(':')}:{USUAL_PORT}, or the port it listens on"
        )
    raise ValueError(f"{text!r} is no address of a broker: write host:port, as in {EXAMPLE} or [::1]:{USUAL_PORT}")
