"""Safeguards that can be switched off, to see whether the simulator finds out: `python -m tidelog.sim --break NAME`.

What each of them guards against is found by what somebody was promised, or could see, and not by an assertion of the
broker itself. Those of a cluster are found sooner with `--aim NAME` (`cluster/aims.py`, `replicated/aims.py`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from tidelog.broker.lifecycle import Lifecycle
from tidelog.controller import brokers
from tidelog.log import journal, recovery
from tidelog.log.journal_replay import additions
from tidelog.raft import driver
from tidelog.raft.control import VoterHistory
from tidelog.raft.driver import RaftDriver
from tidelog.raft.election_file import FILE_NAME, encode_election
from tidelog.raft.quorum import Role
from tidelog.raft.store_log import StoreLog
from tidelog.raft.voters import ReplicaKey
from tidelog.sim.replicated.safeguards import REPLICA_SAFEGUARDS
from tidelog.sim.safeguard import QUORUM, Safeguard
from tidelog.sim.world.disk import SimFixedFile

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from tidelog.env.disk import Disk
    from tidelog.metadata.image import BrokerImage, ClusterImage
    from tidelog.raft.events import ElectionState
    from tidelog.raft.voters import VoterSet


def _first_only(*given: Any) -> Any:
    return additions(*given)[:1]


def _nothing(*_: object) -> None:
    """In the place of something that matters."""


def _always(*_: object) -> bool:
    return True


def _remember_hastily(disk: Disk, folder: str, election: ElectionState, kraft_version: int, voters: VoterSet) -> None:
    temporary = f"{folder}/{FILE_NAME}.tmp"
    file = disk.open(temporary, create=True)
    file.truncate(0)
    file.append(encode_election(election, kraft_version, voters))
    file.sync()
    disk.rename(temporary, f"{folder}/{FILE_NAME}")  # which the power takes back


def _epoch_of_log_alone(log: StoreLog) -> int:
    return max(0, log.epoch_of_records)


def _waits_unless_resigned(replica: RaftDriver) -> bool:
    return replica.quorum.role is not Role.RESIGNED


def _same_id(key: ReplicaKey, other: ReplicaKey) -> bool:
    return key.id == other.id


def _any_epoch(image: ClusterImage, broker_id: int, epoch: int) -> BrokerImage:
    return image.brokers[broker_id]


SAFEGUARDS = {
    "journal-sync": Safeguard(SimFixedFile, "sync", _nothing, "a commit's sync of the journal"),
    "journal-replay": Safeguard(
        recovery, "additions", _first_only, "all but the first of what the journal has of a log"
    ),
    "journal-reuse": Safeguard(
        journal, "_is_settled", _always, "waiting for segments to be durable before the journal is used anew"
    ),
    "journal-void": Safeguard(
        journal.Journal, "void", _nothing, "noting that what the journal has of a log that is cut doesn't count"
    ),
    "vote-fsync": Safeguard(
        driver, "write_election", _remember_hastily, "making a vote durable before it is told", QUORUM
    ),
    "snapshot-epoch": Safeguard(
        StoreLog, "newest_epoch", _epoch_of_log_alone, "the epoch of the checkpoint that a log begins behind", QUORUM
    ),
    "resigned-timer": Safeguard(
        RaftDriver, "waits", _waits_unless_resigned, "the timer of a leader that resigned", QUORUM
    ),
    "data-directory": Safeguard(ReplicaKey, "is_same", _same_id, "the disk that a vote is of", QUORUM),
    "stray-gate": Safeguard(
        Lifecycle,
        "knows_registration",
        _always,
        "catching up with the metadata before files of no partition are put aside",
        QUORUM,
    ),
    "voters-truncation": Safeguard(
        VoterHistory, "cut", _nothing, "taking back who votes when the record that says so is cut off", QUORUM
    ),
    "broker-epoch": Safeguard(brokers, "check_epoch", _any_epoch, "refusing a broker's earlier incarnation", QUORUM),
    **REPLICA_SAFEGUARDS,
}


@contextmanager
def switched_off(name: str | None) -> Generator[None]:
    """Without this safeguard; None: with all of them."""
    if name is None:
        yield
        return
    safeguard = SAFEGUARDS[name]
    with patch.object(safeguard.of, safeguard.name, safeguard.instead):
        yield
