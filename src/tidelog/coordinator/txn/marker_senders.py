"""Which connection of another coordinator counts: its newest.

A coordinator that isn't answered in time gives its connection up, and writes the marker again on a new one. What it
asked on the old one may still come, from a slow network or when a frozen process wakes, and by then the producer may be
in its next transaction: in the first version that has the same epoch, and the late marker would end it, in the middle
perhaps. So what comes on a connection is refused once the same coordinator has used a newer one. A coordinator has one
connection at a time, Tidelog's and Apache Kafka's alike, and says who it is by its client id.
"""

import re

SENDERS_MAX = 10_000
"""Coordinators that are remembered: beyond it, those that came first are forgotten."""

_SENDER = re.compile(r"broker-[0-9]{1,10}-txn-marker-sender")


def sender_name(node_id: int) -> str:
    """The client id that a coordinator writes markers under, as Apache Kafka's do."""
    return f"broker-{node_id}-txn-marker-sender"


class MarkerSenders:
    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def is_newest(self, client_id: str | None, connection_id: int) -> bool:
        """Whether what comes on this connection counts. Of others than coordinators everything does."""
        if client_id is None or _SENDER.fullmatch(client_id) is None:
            return True
        newest = self._newest.get(client_id, -1)
        if connection_id > newest:
            if newest < 0 and len(self._newest) >= SENDERS_MAX:
                del self._newest[next(iter(self._newest))]
            self._newest[client_id] = connection_id
        return connection_id >= newest
