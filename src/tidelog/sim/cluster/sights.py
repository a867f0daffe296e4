"""What the nodes of a cluster say of its metadata log: who leads which epoch, and which records are committed.

An epoch has one leader, and a node's epoch never falls, as long as it has its disk. What one node took for committed at
an offset every other one has there, too, byte for byte, in all its lives.
"""

from collections.abc import Iterator
from typing import Any

from tidelog.raft.driver import RaftDriver
from tidelog.raft.quorum import Role
from tidelog.raft.voters import ReplicaKey
from tidelog.sim.cluster.node import NodeProcess
from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.batch import BatchHeader, check, iterate, records
from tidelog.wire.errors import KafkaError
from tidelog.wire.records.control import VotersRecord, decode_control

READ_BYTES = 1 << 20


class Sights:
    """Of one run."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        """Who leads, or led, by epoch."""
        self.found: Violation | None = None
        """What a node was seen to do wrong while it did it."""
        self.epochs: dict[ReplicaKey, int] = {}
        """The newest that each replica was seen in."""
        self.batches: dict[int, bytes] = {}
        """Committed batches, by their base offsets."""
        self.end = 0
        """Of all that any node took for committed."""
        self.voters: list[tuple[int, frozenset[ReplicaKey]]] = []
        """Who votes, by the offsets of committed records that say so."""

    def saw_epoch(self, key: ReplicaKey, epoch: int) -> None:
        before = self.epochs.get(key, 0)
        if epoch < before:
            raise Violation(f"the epoch of node {key.id} fell from {before} to {epoch}")
        self.epochs[key] = epoch

    def saw_leader(self, epoch: int, leader_id: int) -> None:
        if leader_id < 0:
            return
        known = self.leaders.setdefault(epoch, leader_id)
        if known != leader_id:
            raise Violation(f"epoch {epoch} has two leaders, {known} and {leader_id}")

    def saw_committed(self, node_id: int, header: BatchHeader, data: bytes) -> None:
        known = self.batches.get(header.base_offset)
        if known is None:
            if header.base_offset < self.end and header.next_offset <= self.end and self.batches:
                self._check_between(node_id, header)
            self.batches[header.base_offset] = data
            if header.control:
                self._note_voters(data)
        elif known != data:
            raise Violation(f"the committed metadata at offset {header.base_offset} is another one on node {node_id}")
        self.end = max(self.end, header.next_offset)

    def _check_between(self, node_id: int, header: BatchHeader) -> None:
        """No other batch was seen where this one is: they would overlap, and be two histories."""
        for base_offset, data in self.batches.items():
            other = next(iterate(data))
            if base_offset < header.next_offset and header.base_offset < other.next_offset:
                raise Violation(
                    f"node {node_id} has a committed batch at offsets {header.base_offset} to {header.last_offset}, "
                    f"where another one has one from {base_offset}"
                )

    def _note_voters(self, data: bytes) -> None:
        for record in records(data, next(iterate(data))):
            control = decode_control(record.key or b"", record.value or b"")
            if isinstance(control, VotersRecord):
                keys = frozenset(ReplicaKey(one.voter_id, one.voter_directory_id) for one in control.voters)
                self.voters.append((record.offset, keys))


class Probe:
    """Looks at one life of a node whenever something of its metadata log moved. `look` reads what became committed."""

    def __init__(self, process: NodeProcess, sights: Sights, tell: Any) -> None:
        self._process = process
        self._sights = sights
        self._tell = tell
        self._seen: tuple[int, Role] | None = None
        self._checked = -1
        self.driver: RaftDriver = process.broker.services.quorum
        self.driver.watch(self._moved)
        self._moved()

    def _moved(self) -> None:
        """Called from within the node, which might take an exception for its own: what is found is kept."""
        try:
            self._look_at_role()
            if self.driver.high_watermark > self._checked:
                self.look()
        except Violation as found:
            self._sights.found = self._sights.found or found

    def _look_at_role(self) -> None:
        if self.driver.offline is not None:  # what it decided last was told to nobody
            return
        quorum = self.driver.quorum
        seen = (quorum.election.epoch, quorum.role)
        if seen == self._seen:
            return
        self._seen = seen
        epoch, role = seen
        key = self.driver.local.key
        self._sights.saw_epoch(key, epoch)
        self._tell(self._process, epoch, role)
        if role is Role.LEADER:
            self._sights.saw_leader(epoch, key.id)

    def _batches(self, data: bytes) -> Iterator[BatchHeader]:
        """Those that can be made out: of a node whose sync failed some may be gone, until it hears of that."""
        try:
            yield from iterate(data)
        except KafkaError:
            if not self._process.machine.sync_failed:
                raise

    def look(self) -> None:
        driver = self.driver
        if driver.offline is not None or driver.stopped:  # its log is closed, or about to be
            return
        start, end = max(self._checked, driver.log_start), driver.high_watermark
        while start < end:
            data = driver.log.read(start, READ_BYTES)
            before = start
            for header in self._batches(data):
                if header.next_offset > end:
                    break
                if self._process.machine.sync_failed and not _is_sound(data, header):
                    return  # a sync that failed took it from the page cache, of which this node is about to hear
                start = header.next_offset
                self._sights.saw_committed(self._process.machine.id, header, bytes(data[header.pos : header.end]))
            if start == before:
                break
        self._checked = start


def _is_sound(data: bytes, header: BatchHeader) -> bool:
    try:
        check(data, header, len(data))
    except KafkaError:
        return False
    return True
