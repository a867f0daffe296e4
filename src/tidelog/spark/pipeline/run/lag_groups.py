"""How far each query of a pipeline is, as the offsets of a group of its own: for tools that know lag by groups alone.

Only where the file asks for it (`lag_groups`): a group that nobody asked for is one that nobody understands. Committed
by a thread, about once a second: nothing that goes wrong here ends a run, or holds it up.
"""

import logging
import threading
from collections.abc import Mapping

from tidelog.rpc import Cluster
from tidelog.rpc.errors import Lost, Unreachable, Unsupported
from tidelog.rpc.groups import commit_offsets
from tidelog.spark.pipeline.file.model import Pipeline
from tidelog.wire.errors import KafkaError
from tidelog.wire.topic_partition import TopicPartition

logger = logging.getLogger("tidelog.spark")

COMMIT_S = 1.0
PATIENCE_S = 2.0


def group_of(pipeline: str, query: str) -> str:
    return f"pipeline-{pipeline}-{query}"


class LagGroups:
    """Begun with a run and ended with it, when what is left to tell is told."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._done: dict[str, Mapping[TopicPartition, int]] = {}
        self._committed: dict[str, Mapping[TopicPartition, int]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._commit, daemon=True) if pipeline.spec.lag_groups else None

    def begin(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(2 * PATIENCE_S)

    def tell(self, done: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """The offsets before which each query is done."""
        self._done = dict(done)

    def _commit(self) -> None:
        with self._pipeline.reach(PATIENCE_S) as cluster:
            while not self._over.wait(COMMIT_S):
                self._commit_once(cluster)
            self._commit_once(cluster)

    def _commit_once(self, cluster: Cluster) -> None:
        for query, offsets in self._done.items():
            if not offsets or offsets == self._committed.get(query):
                continue
            group = group_of(self._pipeline.name, query)
            try:
                commit_offsets(cluster, group, offsets)
            except (KafkaError, Unreachable, Unsupported, Lost, OSError) as error:
                logger.warning("group %s shows an old lag, its offsets can't be committed: %s", group, error)
                return
            self._committed[query] = offsets
