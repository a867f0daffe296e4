"""A node asks the controllers that its settings name which cluster they are, before it is one of theirs.

On an empty folder it has to know: nothing makes up a cluster id where there are others. With an id it asks beside its
start, and a start is refused where all who answer belong to another cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.raft.discovery import learn_cluster_id
from tidelog.rpc.peer import Peers

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.env import Environment
    from tidelog.env.promise import Promise


class ClusterIdLookup:
    """One question to those controllers, asked until it is answered or over."""

    def __init__(self, env: Environment, config: BrokerConfig) -> None:
        self._env = env
        self._config = config
        self._peers = Peers(env, "cluster id", client_id=f"broker-{config.node_id}")
        self._over = False

    def ask(self, own_id: str | None) -> Promise[str]:
        """The id of their cluster. It fails where that isn't `own_id`, or where they are of several clusters."""
        learnt = learn_cluster_id(
            self._env,
            self._peers,
            self._config.other_controllers,
            own_id=own_id,
            request_timeout_ms=max(1, self._config.controller_quorum_request_timeout_ms),
            stopped=lambda: self._over,
        )
        learnt.on_done(self._answered)
        return learnt

    def _answered(self, _: Promise[str]) -> None:
        self._env.loop.call_soon(self.end)  # not from within the answer of one of them

    def end(self) -> None:
        """Nobody waits for the answer any more."""
        self._over = True
        self._peers.close()
