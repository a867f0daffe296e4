"""Who sends a request."""

from typing import NamedTuple


class Caller(NamedTuple):
    client_id: str
    host: str
