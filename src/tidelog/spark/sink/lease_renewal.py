"""A task that writes or waits for rows renews the leases of all that its run has open: also of tasks that are done.

Brokers abort a two-phase transaction that nobody has renewed for `tidelog.transaction.lease.ms`: its query was killed.
A batch may take longer than that, and in the driver no process of ours lives as long as a batch does. But while a batch
is on its way some task of it is, too: whichever runs speaks for those that are done.
"""

import logging
import random
import threading
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from tidelog.rpc import Cluster
from tidelog.rpc.leases import renew
from tidelog.rpc.transactions import describe_open
from tidelog.spark.sink.producers import Attempt, owner_of
from tidelog.spark.sink.sink_options import SinkOptions

logger = logging.getLogger("tidelog.spark")

NAME = "tidelog-renewal"
RENEW_S = 60.0
"""A fifteenth of the lease that brokers have by default."""
PATIENCE_S = 30.0
OFTEN_UP_TO = 8
RARER_BY_MAX = 5.0
"""Where many transactions are open many tasks run, and each renews all of them: so each does it more rarely."""


class Renewal:
    """Renews in a thread, from when it is entered until it is left; a lease that can't be renewed is only told of."""

    def __init__(self, options: SinkOptions, attempt: Attempt) -> None:
        self._options = options
        self._attempt = attempt
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    def __enter__(self) -> "Renewal":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()  # not waited for: it may be waiting for a broker

    def _run(self) -> None:
        pause_s = RENEW_S
        cluster: Cluster | None = None
        while not self._over.wait(pause_s * random.uniform(0.7, 1.0)):
            try:
                cluster = cluster or Cluster(self._options.bootstrap, replace(self._options.rpc, patience_s=PATIENCE_S))
                pause_s = RENEW_S * min(max(self.renew(cluster) / OFTEN_UP_TO, 1.0), RARER_BY_MAX)
            except Exception as error:  # the next time, perhaps: a lease is many times as long as a pause
                logger.warning("the leases of %s were not renewed: %s", self._attempt.sink, error)
        if cluster is not None:
            with suppress(OSError):
                cluster.close()

    def renew(self, cluster: Cluster) -> int:
        """Renew all leases of the run; how many there are."""

        def wanted(name: str) -> bool:
            owner = owner_of(name)
            return owner is not None and (owner.sink, owner.run) == (self._attempt.sink, self._attempt.run)

        transactions = [each for each in describe_open(cluster, wanted) if each.leased]
        renew(cluster, transactions)
        return len(transactions)
