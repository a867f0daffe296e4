"""Asking a broker from a plain process: connections, versions, retries. For tasks and tools, which may block.

    with Cluster("127.0.0.1:9092") as cluster:
        ends = list_offsets(cluster, {("orders", 0): LATEST})

Nothing here runs inside a broker's loop: a call returns when it has its answer, or raises after a deadline.
"""

from tidelog.rpc.cluster import Cluster, Partition, Topic
from tidelog.rpc.errors import Unreachable
from tidelog.rpc.offsets import EARLIEST, LATEST, list_offsets
from tidelog.rpc.options import Options

__all__ = ["EARLIEST", "LATEST", "Cluster", "Options", "Partition", "Topic", "Unreachable", "list_offsets"]
