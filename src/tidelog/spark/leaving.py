"""A query that is stopped in the middle of a batch: what its tasks have open is ended before the process goes.

Spark cuts tasks off and calls no abort then, so that readers of committed records would wait until the query's next
start. Whoever stops a query calls this: pipelines do.
"""

import logging
import time
from dataclasses import replace

from tidelog.rpc import Cluster
from tidelog.rpc.transactions import open_transactions
from tidelog.spark.decisions import Decisions
from tidelog.spark.producers import Owner, owner_of
from tidelog.spark.sink_options import BATCH_MAX, SinkOptions

logger = logging.getLogger("tidelog.spark")

PATIENCE_S = 10.0
PAUSE_S = 0.25
QUIET_LOOKS = 12
"""Spark gives a Python process that is to end two seconds: for so long it may begin a transaction yet."""
LOOKS_MAX = 100


def end_run(options: SinkOptions, run: str, *, is_ending: bool = False) -> int:
    """Abort what tasks of a run that was stopped have open, and commit what is decided; how many ids that were.

    `options` are those of the query's sink: decisions are looked up where it writes them. `is_ending`: tasks are known
    to be under way yet, so that it is looked for what they open even where nothing is open now.
    """
    ended: set[str] = set()
    with Cluster(options.bootstrap, replace(options.rpc, patience_s=PATIENCE_S)) as cluster:
        looks = quiet = 0
        while looks < LOOKS_MAX and quiet < (QUIET_LOOKS if ended or is_ending else 1):
            found = _open(cluster, run)
            for owner in set(found.values()):
                Decisions(cluster, owner.sink, run, options.decisions).abort(BATCH_MAX, None, ())
            ended |= found.keys()
            looks, quiet = looks + 1, 0 if found else quiet + 1
            if ended or is_ending:
                time.sleep(PAUSE_S)
    if ended:
        logger.info("run %s was stopped in the middle of a batch: %d transactions were ended", run, len(ended))
    return len(ended)


def _open(cluster: Cluster, run: str) -> dict[str, Owner]:
    """Who has something open, by transactional id."""

    def wanted(name: str) -> bool:
        owner = owner_of(name)
        return owner is not None and owner.run == run

    names = (each.transactional_id or "" for each in open_transactions(cluster, wanted))
    return {name: owner for name in names if (owner := owner_of(name)) is not None}
