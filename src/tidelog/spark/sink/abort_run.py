"""A batch that is cut off in the middle: what its tasks have open is ended before the process goes.

When a query is stopped, or a job fails, Spark kills tasks, some after the sink's abort was called. That looks for what
they leave, and so do pipelines, which end a run. Else readers of committed records would wait until a lease is over.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from tidelog.rpc import Cluster
from tidelog.rpc.errors import Unsupported
from tidelog.rpc.transactions import open_transactions
from tidelog.spark.sink.decisions import Decisions
from tidelog.spark.sink.producers import Owner, owner_of
from tidelog.spark.sink.sink_name import described
from tidelog.spark.sink.sink_options import BATCH_MAX, SinkOptions
from tidelog.wire.errors import KafkaError

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
    return end_owned(options, lambda owner: owner.run == run, f"run {run}", is_ending=is_ending)


def end_sink(options: SinkOptions, sink: str) -> None:
    """End what earlier runs of a sink left, where it goes on without transactions: nobody else would come to do it.

    Brokers that don't tell what is open are only told of: who writes at least once needs nothing of them for that.
    """
    try:
        end_owned(options, lambda owner: owner.sink == sink, f"an earlier run of {described(sink)}", is_ending=False)
    except (KafkaError, Unsupported) as error:
        logger.warning("%s: could not look for what an earlier run left open: %s", described(sink), error)


def end_owned(options: SinkOptions, wanted: Callable[[Owner], bool], whose: str, *, is_ending: bool) -> int:
    """The same of what these owners have open."""
    ended: set[str] = set()
    with Cluster(options.bootstrap, replace(options.rpc, patience_s=PATIENCE_S)) as cluster:
        looks = quiet = 0
        while looks < LOOKS_MAX and quiet < (QUIET_LOOKS if ended or is_ending else 1):
            owners = _open(cluster, wanted)
            for sink, run in {(owner.sink, owner.run) for owner in owners.values()}:
                Decisions(cluster, sink, run, options.decisions).abort(BATCH_MAX, None, ())
            ended |= owners.keys()
            looks, quiet = looks + 1, 0 if owners else quiet + 1
            if ended or is_ending:
                time.sleep(PAUSE_S)
    if ended:
        logger.info("%s was stopped in the middle of a batch: %d transactions were ended", whose, len(ended))
    return len(ended)


def _open(cluster: Cluster, wanted: Callable[[Owner], bool]) -> dict[str, Owner]:
    """Who has something open, by transactional id."""

    def is_wanted(name: str) -> bool:
        owner = owner_of(name)
        return owner is not None and wanted(owner)

    names = (each.transactional_id or "" for each in open_transactions(cluster, is_wanted))
    return {name: owner for name in names if (owner := owner_of(name)) is not None}
