"""A member of a classic group as its coordinator sees it: what it asked for, and whether it waits for an answer."""

from collections.abc import Container

from tidelog.coordinator.group.classic.state import ClassicMember

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata, in the order that the member prefers."""

NEVER = float("inf")


def bytes_of(protocols: Protocols) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class LiveMember:
    """`joining` and `syncing` are the tickets of requests that wait; `deadline_ms` is when its session ends."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.joining: object | None = None
        self.syncing: object | None = None
        self.is_new = False
        """It has never been answered, so it knows no id to send heartbeats with."""
        self.deadline_ms: float = NEVER

    @classmethod
    def loaded(cls, member: ClassicMember, protocol: str | None) -> "LiveMember":
        """As the log knows it: under the group's protocol alone."""
        return cls(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            ((protocol or "", member.subscription),),
            member.assignment,
        )

    def under(self, member_id: str) -> "LiveMember":
        """The same member under another id; whoever waited under the old one doesn't wait under this."""
        return LiveMember(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            self.assignment,
        )

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Its silence says nothing: a request of it waits here. A new member's may wait for ever, so it isn't."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"{self.member_id} doesn't know the protocol {protocol}")

    def vote(self, candidates: Container[str]) -> str:
        """The first of its protocols that everybody knows."""
        return next(name for name, _ in self.protocols if name in candidates)
