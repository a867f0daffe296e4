"""Other nodes, as the quorum asks them: the seam between raft and the client in `rpc/`."""

from typing import Any, Protocol

from tidelog.env.promise import Promise


class Peer(Protocol):
    """One other node."""

    def ask(self, request: Any, timeout_ms: int) -> Promise[Any]:
        """The response, in the highest version that both know; fails where none came in time."""
        ...

    def close(self) -> None: ...


class Peers(Protocol):
    """All of them. The one at an address is made when it is first asked for, and kept."""

    def at(self, node_id: int, host: str, port: int) -> Peer: ...

    def close(self) -> None:
        """End all connections."""
        ...
