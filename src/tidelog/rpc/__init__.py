"""Asking brokers. From a plain process, such as a task or a tool, which may block:

    with Cluster("127.0.0.1:9092") as cluster:
        ends = list_offsets(cluster, {("orders", 0): LATEST})

A call returns when it has its answer, or raises after a deadline. From a node's loop, where nothing may block,
`peer.py` asks other nodes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.rpc.cluster import Cluster, Partition, Topic
    from tidelog.rpc.errors import Unreachable
    from tidelog.rpc.offsets import EARLIEST, LATEST, list_offsets
    from tidelog.rpc.options import Options

__all__ = ["EARLIEST", "LATEST", "Cluster", "Options", "Partition", "Topic", "Unreachable", "list_offsets"]

_HOMES = {
    "EARLIEST": "tidelog.rpc.offsets",
    "LATEST": "tidelog.rpc.offsets",
    "Cluster": "tidelog.rpc.cluster",
    "Options": "tidelog.rpc.options",
    "Partition": "tidelog.rpc.cluster",
    "Topic": "tidelog.rpc.cluster",
    "Unreachable": "tidelog.rpc.errors",
    "list_offsets": "tidelog.rpc.offsets",
}


def __getattr__(name: str) -> Any:
    """Imported on first use: a node needs none of it, nor TLS, to ask other nodes."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
