"""Whole replicas of the metadata log on virtual time: their drivers, disks, requests and answers, byte for byte.

What is between them loses, delays and cuts off; disks forget what wasn't synced; checkpoints replace the log as often
as can be. After every event: one leader an epoch, epochs that never fall, and nothing committed that ever changes.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import resolve_topic
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.log.store import Store
from tidelog.raft.checkpointer import SnapshotSource
from tidelog.raft.node import RaftNode, RaftPlace
from tidelog.raft.quorum import Role
from tidelog.raft.replay import ReplayBatch
from tidelog.raft.settings import RaftSettings
from tidelog.raft.snapshot import SnapshotContents, SnapshotId, encode_snapshot, write_snapshot
from tidelog.raft.store_log import METADATA_CONFIG, METADATA_TOPIC, StoreLog
from tidelog.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.random import SimRandom
from tidelog.wire.codec import decode_whole, encoder
from tidelog.wire.errors import KafkaError
from tidelog.wire.keys import RANGES
from tidelog.wire.messages import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from tidelog.wire.schema import schema

ROOT = "/data"
FOLDER = f"{ROOT}/{METADATA_TOPIC}-0"
CLUSTER_ID = "a-cluster-of-tests-----"
LISTENER = "CONTROLLER"
PORT = 9093
SETTINGS = RaftSettings(snapshot_bytes=2000, retention_bytes=0)
HEALED_IN_S = 20.0
WRITE_EVERY_S = 0.05

RESPONSES: dict[type, type] = {
    vote.VoteRequest: vote.VoteResponse,
    begin_quorum_epoch.BeginQuorumEpochRequest: begin_quorum_epoch.BeginQuorumEpochResponse,
    end_quorum_epoch.EndQuorumEpochRequest: end_quorum_epoch.EndQuorumEpochResponse,
    fetch.FetchRequest: fetch.FetchResponse,
    fetch_snapshot.FetchSnapshotRequest: fetch_snapshot.FetchSnapshotResponse,
    add_raft_voter.AddRaftVoterRequest: add_raft_voter.AddRaftVoterResponse,
    remove_raft_voter.RemoveRaftVoterRequest: remove_raft_voter.RemoveRaftVoterResponse,
    update_raft_voter.UpdateRaftVoterRequest: update_raft_voter.UpdateRaftVoterResponse,
    api_versions.ApiVersionsRequest: api_versions.ApiVersionsResponse,
}


def endpoint(id: int) -> Endpoint:
    return Endpoint(LISTENER, f"node{id}", PORT)


class Machine:
    """What is on top of one replica: the values that are committed, each with its offset."""

    def __init__(self, cluster: "Cluster") -> None:
        self.values: dict[int, bytes] = {}
        self.loaded: list[SnapshotId] = []
        self.leading: int | None = None
        self._cluster = cluster
        self._end = SnapshotId(0, 0)
        self._written: dict[int, bytes] = {}

    def load_snapshot(self, contents: SnapshotContents, snapshot: SnapshotId) -> None:
        pairs = (value.partition(b"=") for value in contents.values)
        self.values = {int(offset): value for offset, _, value in pairs}
        self.loaded.append(snapshot)
        self._end = snapshot
        for offset, value in self.values.items():
            self._cluster.is_committed(offset, value)

    def replay(self, batches: Iterable[ReplayBatch]) -> None:
        for batch in batches:
            assert batch.last_offset >= self._end.offset, "replayed twice"
            for index, value in enumerate(batch.values):
                self._take(batch.first_offset + index, value)
            self._end = SnapshotId(batch.last_offset + 1, batch.epoch)

    def lead(self, epoch: int) -> None:
        self.leading = epoch

    def stop_leading(self, epoch: int) -> None:
        self.leading = None
        self._written.clear()

    def committed(self, end: int) -> None:
        assert self.leading is not None
        for offset in [offset for offset in self._written if offset < end]:
            self._take(offset, self._written.pop(offset))
        self._end = SnapshotId(end, self.leading)

    def wrote(self, offset: int, value: bytes) -> None:
        self._written[offset] = value

    def _take(self, offset: int, value: bytes) -> None:
        self.values[offset] = value
        self._cluster.is_committed(offset, value)

    def snapshot_source(self) -> SnapshotSource | None:
        if not self._end.offset:
            return None
        values = [b"%d=%s" % pair for pair in self.values.items()]
        return SnapshotSource(self._end, 0, values)


class SimReplica:
    """One node: its disk, and its life while it is up."""

    def __init__(self, cluster: "Cluster", id: int) -> None:
        self.id = id
        self.cluster = cluster
        self.disk = SimDisk(cluster.random)
        self.disk.now_ms = cluster.timeline.now_ms
        self.key = ReplicaKey(id, bytes([id, 0]) * 8)
        self.endpoint = endpoint(id)
        self.auto_join = False
        self.loop: SimLoop | None = None
        self.env: Environment
        self.node: RaftNode
        self.machine: Machine
        self.epoch = 0

    @property
    def up(self) -> bool:
        return self.loop is not None

    def format(self, voters: VoterSet | None) -> None:
        """As `raft/folder.py` does it: who is to join has no checkpoint."""
        self.disk.make_folders(FOLDER)
        if voters is not None:
            batches = encode_snapshot((), epoch=0, log_timestamp_ms=0, now_ms=0, kraft_version=1, voters=voters)
            write_snapshot(self.disk, FOLDER, SnapshotId(0, 0).file_name, batches)
        self.disk.sync_folder(ROOT)

    def start(self) -> None:
        if self.up:
            return
        cluster = self.cluster
        loop = self.loop = SimLoop(cluster.timeline, cluster.random)
        config = BrokerConfig.parse(
            {
                "process.roles": "broker,controller",
                "node.id": str(self.id),
                "log.initial.task.delay.ms": "1000000000000",
                "tidelog.journal.bytes": "0",
            }
        )
        env = self.env = Environment(cluster.timeline, loop, self.disk, cast(Any, None), cluster.random)
        store = Store(env, [ROOT], config)
        store.start()
        log = StoreLog(store, cluster.timeline, resolve_topic(METADATA_CONFIG, config))
        place = RaftPlace(
            CLUSTER_ID,
            FOLDER,
            Voter(self.key, (self.endpoint,)),
            LISTENER,
            voters=cluster.static_voters,
            bootstrap=[endpoint(1), endpoint(2)],
            auto_join=self.auto_join,
        )
        self.machine = Machine(cluster)
        self.node = RaftNode(env, place, log, cluster.settings, LinkedPeers(cluster, self.id, loop))
        self.node.start(self.machine)

    def crash(self, *, power_loss: bool = True) -> None:
        if self.loop is not None:
            self.loop.kill()
            self.loop = None
            if power_loss:
                self.disk.crash()

    def wipe(self) -> None:
        """Another disk: another replica, which was told of nobody."""
        self.crash()
        self.disk = SimDisk(self.cluster.random)
        self.disk.now_ms = self.cluster.timeline.now_ms
        self.key = ReplicaKey(self.id, bytes([self.id, self.key.directory_id[1] + 1]) * 8)
        self.epoch = 0
        self.format(None)

    def write(self, value: bytes) -> None:
        leading = self.machine.leading
        if leading is not None:
            try:
                offset = self.node.driver.append([value], leading, self.cluster.timeline.now_ms())
            except KafkaError:
                return  # it led a moment ago
            if self.machine.leading == leading and offset not in self.machine.values:
                self.machine.wrote(offset, value)

    def serve(self, request: Any) -> Any:
        server, members = self.node.server, self.node.members
        match request:
            case vote.VoteRequest():
                return server.vote(request)
            case begin_quorum_epoch.BeginQuorumEpochRequest():
                return server.begin_epoch(request)
            case end_quorum_epoch.EndQuorumEpochRequest():
                return server.end_epoch(request)
            case fetch.FetchRequest():
                return server.fetches.fetch(request, 18)
            case fetch_snapshot.FetchSnapshotRequest():
                return server.fetch_snapshot(request)
            case add_raft_voter.AddRaftVoterRequest():
                return members.add(request)
            case remove_raft_voter.RemoveRaftVoterRequest():
                return members.remove(request)
            case update_raft_voter.UpdateRaftVoterRequest():
                return members.update(request)
            case _:
                feature = api_versions.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
                return api_versions.ApiVersionsResponse(supported_features=[feature])


class LinkedPeers:
    """The others, as one node reaches them."""

    def __init__(self, cluster: "Cluster", sender: int, loop: SimLoop) -> None:
        self._cluster = cluster
        self._sender = sender
        self._loop = loop

    def at(self, node_id: int, host: str, port: int) -> "LinkedPeer":
        return LinkedPeer(self._cluster, self._sender, self._loop, int(host.removeprefix("node")))


class LinkedPeer:
    """One of them. Requests and answers travel as bytes; what is lost is missed when the time is over."""

    def __init__(self, cluster: "Cluster", sender: int, loop: SimLoop, to: int) -> None:
        self._cluster = cluster
        self._sender = sender
        self._loop = loop
        self._to = to

    def close(self) -> None:
        pass

    def ask(self, request: Any, timeout_ms: int) -> Promise[Any]:
        cls: type[Any] = request.__class__
        key = schema(cls).key
        assert key is not None
        version = RANGES[key].max
        cluster, sender, to = self._cluster, self._sender, self._to
        answer: Promise[Any] = Promise()
        data = bytes(encoder(cls, version)(request))
        cluster.sent[cls.__name__] = cluster.sent.get(cls.__name__, 0) + 1
        timer = self._loop.call_later(timeout_ms / 1000, lambda: answer.fail(TimeoutError("no answer in time")))

        def back(response: Any) -> None:
            payload = bytes(encoder(RESPONSES[cls], version)(response))
            cluster.travel(to, sender, lambda: settle(payload))

        def settle(payload: bytes) -> None:
            if self._loop.alive and not answer.done:
                timer.cancel()
                answer.resolve(decode_whole(RESPONSES[cls], version, payload))

        def arrive() -> None:
            replica = cluster.replicas.get(to)
            if replica is None or not replica.up:
                return
            response = replica.serve(decode_whole(cls, version, data))
            if isinstance(response, Promise):
                cast("Promise[Any]", response).on_done(lambda promise: back(promise.result()))
            else:
                back(response)

        cluster.travel(sender, to, arrive)
        return answer


class Cluster:
    """`voters` nodes that vote from the begin, and `observers` that were told of bootstrap servers only. `static`: the
    voters are settings of all of them (kraft.version 0)."""

    def __init__(
        self, seed: int, voters: int, observers: int = 0, settings: RaftSettings = SETTINGS, *, static: bool = False
    ) -> None:
        self.random = SimRandom(seed)
        self.timeline = Timeline()
        self.settings = settings
        self.chaos = False
        self.blocked: set[tuple[int, int]] = set()
        self.loss = self.random.choose([0.02, 0.1, 0.3])
        self.committed: dict[int, bytes] = {}
        self.leaders: dict[int, int] = {}
        self.sent: dict[str, int] = {}
        self.writing = True
        self._written = 0
        ids = range(1, voters + observers + 1)
        self.replicas = {id: SimReplica(self, id) for id in ids}
        keys = [self.replicas[id].key for id in ids if id <= voters]
        initial = VoterSet(tuple(Voter(key, (endpoint(key.id),)) for key in keys))
        without_disks = tuple(Voter(ReplicaKey(key.id), (endpoint(key.id),)) for key in keys)
        self.static_voters = VoterSet(without_disks) if static else None
        for replica in self.replicas.values():
            replica.format(initial if replica.id <= voters and not static else None)
            replica.start()
        self.timeline.plan(WRITE_EVERY_S, self._write_on)

    def _write_on(self) -> None:
        for replica in self.leading() if self.writing else ():
            self._written += 1
            replica.write(b"value %d" % self._written)
        self.timeline.plan(WRITE_EVERY_S, self._write_on)

    def travel(self, sender: int, to: int, arrive: Callable[[], None]) -> None:
        if (sender, to) in self.blocked or (self.chaos and self.random.chance(self.loss)):
            return
        slow = self.chaos and self.random.chance(0.05)
        self.timeline.plan(self.random.between(0.0005, 3.0 if slow else 0.02), self._arrive, sender, to, arrive)

    def _arrive(self, sender: int, to: int, arrive: Callable[[], None]) -> None:
        if (sender, to) not in self.blocked:
            arrive()

    # ---- what must hold ----

    def is_committed(self, offset: int, value: bytes) -> None:
        assert self.committed.setdefault(offset, value) == value, f"what is committed at {offset} changed"

    def check(self) -> None:
        for replica in self.up():
            quorum = replica.node.driver.quorum
            quorum.check_invariants()
            assert quorum.epoch >= replica.epoch, f"the epoch of node {replica.id} fell"
            replica.epoch = quorum.epoch
            if quorum.role is Role.LEADER:
                assert self.leaders.setdefault(quorum.epoch, replica.id) == replica.id, "an epoch has two leaders"

    # ---- time and trouble ----

    def up(self) -> list[SimReplica]:
        return [replica for replica in self.replicas.values() if replica.up]

    def leading(self) -> list[SimReplica]:
        return [replica for replica in self.up() if replica.machine.leading is not None]

    def leader(self) -> SimReplica:
        self.run(lambda: len(self.leading()) == 1)
        return self.leading()[0]

    def run(self, until: Callable[[], bool], seconds: float = HEALED_IN_S) -> None:
        def done() -> bool:
            self.check()
            return until()

        assert self.timeline.run_until(done, self.timeline.now + seconds), "it never came"

    def settle(self, seconds: float) -> None:
        def never() -> bool:
            self.check()
            return False

        self.timeline.run_until(never, self.timeline.now + seconds)

    def misfortune(self) -> None:
        ids = list(self.replicas)
        replica = self.replicas[self.random.choose(ids)]
        draw = self.random.random_int(0, 99)
        if draw < 5:
            for each in self.replicas.values():
                each.crash()
        elif draw < 25:
            replica.crash(power_loss=self.random.chance(0.5))
        elif draw < 55:
            replica.start()
        elif draw < 68:
            cut_off = {id for id in ids if self.random.chance(0.4)}
            ways = [(a, b) for a in ids for b in ids if (a in cut_off) != (b in cut_off)]
            self.blocked = {way for way in ways if self.random.chance(0.7)}
        elif draw < 78:
            self.blocked = set()
        else:
            self.change_voters(replica)

    def change_voters(self, replica: SimReplica) -> None:
        """Whoever leads is asked to add this one to the voters, or to remove it from them."""
        for leader in self.leading():
            voters = leader.node.driver.voters
            if any(voter.key == replica.key for voter in voters.voters):
                leader.node.membership.remove(replica.key, 2000)
            else:
                leader.node.membership.add(Voter(replica.key, (replica.endpoint,)), 2000)

    def suffer(self, seconds: float) -> None:
        self.chaos = True
        end = self.timeline.now + seconds
        while self.timeline.now < end:
            self.settle(self.random.between(0.0, 0.6))
            self.misfortune()
        self.chaos = False

    def heal(self) -> None:
        """Nothing goes wrong any more: soon everybody has what is committed, and more is."""
        self.blocked = set()
        for replica in self.replicas.values():
            replica.start()
        before = len(self.committed)
        self.run(lambda: len(self.committed) > before + 5)
        newest = max(self.committed)
        self.run(lambda: all(newest in replica.machine.values for replica in self.replicas.values()))
        for replica in self.replicas.values():
            values = replica.machine.values
            assert values == {offset: self.committed[offset] for offset in sorted(values)}
            assert set(values) >= {offset for offset in self.committed if offset <= newest}
