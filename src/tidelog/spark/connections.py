"""The connections of a Python worker, kept between its tasks: each task would begin by asking who leads what."""

import atexit

from tidelog.rpc import Cluster, Options

CLUSTERS_MAX = 8

_clusters: dict[tuple[str, Options], Cluster] = {}


def cluster_of(bootstrap: str, options: Options) -> Cluster:
    """This process's connections to a cluster; not to be closed by who uses them."""
    key = (bootstrap, options)
    cluster = _clusters.pop(key, None) or Cluster(bootstrap, options)
    _clusters[key] = cluster  # the last one used goes last
    while len(_clusters) > CLUSTERS_MAX:
        _clusters.pop(next(iter(_clusters))).close()
    return cluster


@atexit.register
def _close() -> None:
    while _clusters:
        _clusters.popitem()[1].close()
