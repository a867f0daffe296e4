"""Who leads the metadata log, for whoever reads a node's log: one line for each leader, and one when it is lost.

An outage of the quorum is one line, however many elections fail while it lasts.
"""

import logging

from tidelog.raft.driver import RaftDriver
from tidelog.raft.events import NO_LEADER

_logger = logging.getLogger(__name__)


class LeaderLines:
    """A watcher of the driver. A quorum of this node alone says nothing: there is nobody else."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver
        self._told = (NO_LEADER, 0)
        """The leader that was told last and its epoch, or NO_LEADER and the epoch that lost it."""

    def look(self) -> None:
        driver = self._driver
        leader_id = driver.leader_id
        told_id, told_epoch = self._told
        if leader_id == told_id and (leader_id == NO_LEADER or driver.epoch == told_epoch):
            return
        self._told = (leader_id, driver.epoch)
        if driver.voters.is_only(driver.local.key.id):
            return
        if leader_id != NO_LEADER:
            who = "this node" if leader_id == driver.local.key.id else f"node {leader_id}"
            _logger.info("%s leads the metadata log, in epoch %d", who, driver.epoch)
            return
        _logger.warning(
            "node %d, which led the metadata log in epoch %d, leads it no longer or can't be reached: until more than "
            "half of the voters %s elect another one, nothing can be changed",
            told_id,
            told_epoch,
            ", ".join(map(str, sorted(driver.voters.ids))) or "(unknown)",
        )
