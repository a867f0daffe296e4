"""A node without a cluster id, on an empty folder, learns it from the controllers that it was told of.

All of them are asked at once, with DescribeCluster on the controllers' listener, and again after a while until one
answers: a cluster id is never made up where there are others. Controllers that belong to different clusters are
refused: it would be chance which of them is joined.

A node that has an id asks the same, beside its start: where all that answer belong to another cluster it will never be
one of them, and is better told so than left to wait.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.log.partition_folders import FolderError
from tidelog.raft.peers import Peers
from tidelog.wire.errors import ErrorCode, error_name
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest

_logger = logging.getLogger("tidelog.broker")

CONTROLLERS = 2
"""DescribeCluster's endpoint type, of KIP-919."""
RETRY_MS = 100
RETRY_MS_MAX = 2000
TELL_EVERY_S = 10.0

Address = tuple[str, int]


def learn_cluster_id(
    env: Environment,
    peers: Peers,
    controllers: Sequence[Address],
    *,
    own_id: str | None = None,
    request_timeout_ms: int = 2000,
    stopped: Callable[[], bool] = lambda: False,
) -> Promise[str]:
    """The id of the cluster that these controllers belong to, as soon as one of them tells it; never settled once
    `stopped`. Those who are asked get negative node ids.

    FolderError where they belong to different clusters; of a node that has an id, `own_id`, where nobody has the same.
    """
    assert controllers, "nobody to ask"
    discovery = _Discovery(env, peers, controllers, own_id, request_timeout_ms, stopped)
    discovery.ask()
    return discovery.promise


class _Discovery:
    """Rounds of questions, each to all controllers, until a round had an answer."""

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        controllers: Sequence[Address],
        own_id: str | None,
        request_timeout_ms: int,
        stopped: Callable[[], bool],
    ) -> None:
        self.promise: Promise[str] = Promise()
        self._env = env
        self._peers = peers
        self._controllers = controllers
        self._own_id = own_id
        self._request_timeout_ms = request_timeout_ms
        self._stopped = stopped
        self._backoff_ms = RETRY_MS
        self._told_at: float | None = None
        self._cluster_ids: dict[str, Address] = {}
        self._reasons: dict[Address, str] = {}
        self._open = 0

    def ask(self) -> None:
        if self._stopped():
            return
        self._open = len(self._controllers)
        for number, (host, port) in enumerate(self._controllers):
            asked = self._peers.at(-2 - number, host, port).ask(
                DescribeClusterRequest(endpoint_type=CONTROLLERS), self._request_timeout_ms
            )
            asked.on_done(partial(self._answered, (host, port)))

    def _answered(self, address: Address, asked: Promise[Any]) -> None:
        self._open -= 1
        if asked.error is not None:
            self._reasons[address] = str(asked.error)
        elif asked.result().error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE:
            self._reasons[address] = f"{_shown(address)}: that is a broker's listener, not a controller's"
        elif asked.result().error_code != ErrorCode.NONE or not asked.result().cluster_id:
            self._reasons[address] = f"{_shown(address)}: {error_name(asked.result().error_code)}"
        else:
            self._cluster_ids.setdefault(asked.result().cluster_id, address)
        if not self._open and not self._stopped():
            self._round_over()

    def _round_over(self) -> None:
        if not self._cluster_ids:
            self._tell()
            delay_ms, self._backoff_ms = self._backoff_ms, min(2 * self._backoff_ms, RETRY_MS_MAX)
            spread_ms = delay_ms + self._env.random.random_int(0, delay_ms)
            self._env.loop.call_later(spread_ms / 1000, self.ask)
            return
        if self._own_id in self._cluster_ids:
            self.promise.resolve(self._own_id)
        elif self._own_id is None and len(self._cluster_ids) == 1:
            self.promise.resolve(next(iter(self._cluster_ids)))
        else:
            self.promise.fail(FolderError(self._why_not()))

    def _why_not(self) -> str:
        told = ", ".join(f"{_shown(at)} to {cluster_id}" for cluster_id, at in sorted(self._cluster_ids.items()))
        if self._own_id is None:
            return f"the controllers belong to different clusters, {told}: name those of one of them only"
        return (
            f"the folders of this node belong to cluster {self._own_id}, but of the controllers {told}: name those of "
            "its own cluster, or other folders"
        )

    def _tell(self) -> None:
        """Once in a while: somebody may be waiting for this node. One that has an id has other things to tell."""
        if self._own_id is not None:
            return
        now = self._env.clock.monotonic()
        if self._told_at is None or now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            _logger.warning(
                "this node has no cluster yet and waits for one of the controllers at %s to answer: %s. Where the "
                "cluster is new, too, its controllers must be formatted before they are started (`tidelog format`)",
                ", ".join(map(_shown, self._controllers)),
                "; ".join(self._reasons[address] for address in self._controllers if address in self._reasons),
            )


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
