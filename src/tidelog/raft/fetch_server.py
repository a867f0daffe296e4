"""Fetches of the metadata log, as its leader answers them: at once where there is something to say, or parked.

A parked fetch is looked at again when the log grew, the high watermark moved, or another epoch began, and answered when
its time is over. From version 18 on a replica tells the high watermark that it knows (KIP-1166), and is answered when
there is a higher one: it would otherwise hear of a commit with the next record, or when its time is over.

What is answered may not be durable here yet: what counts is how many have it, and this node is one of them.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.env import Environment
from tidelog.env.loop import Timer
from tidelog.env.promise import Promise
from tidelog.raft.driver import RaftDriver
from tidelog.raft.events import LogEnd, ReplicaFetched
from tidelog.raft.fetch import Diverging, Fetch, Refused, Served, SnapshotNeeded, answer_fetch
from tidelog.raft.folder import METADATA_TOPIC_ID
from tidelog.raft.progress import ReplicaProgress
from tidelog.raft.requests import METADATA_TOPIC, only_partition
from tidelog.raft.voters import Endpoint, ReplicaKey
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages import fetch as wire

READ_BYTES_MAX = 1024 * 1024
"""What is read for one answer, the first batch apart, which is sent whole."""
PARKED_MAX = 1000
WAIT_MAX_MS = 60_000
FIRST_WITH_ENDPOINTS = 17
FIRST_WITH_STATE = 15
FIRST_WITH_IDS = 13
UNKNOWN = -1


class _Parked(NamedTuple):
    asked: wire.FetchPartition
    version: int
    replica: ReplicaKey
    response: Promise[wire.FetchResponse]
    timer: Timer


def asks_for_metadata(request: wire.FetchRequest, version: int) -> bool:
    """Whether a fetch is for the metadata log, alone or with others."""
    if version < FIRST_WITH_IDS:
        return any(topic.topic == METADATA_TOPIC for topic in request.topics)
    return any(topic.topic_id == METADATA_TOPIC_ID for topic in request.topics)


class FetchServer:
    """The fetches that wait. One a replica: the next one of it replaces it."""

    def __init__(
        self,
        env: Environment,
        driver: RaftDriver,
        cluster_id: str,
        progress: ReplicaProgress,
        leader_endpoint: Callable[[], Endpoint | None],
    ) -> None:
        self._env = env
        self._driver = driver
        self._cluster_id = cluster_id
        self._progress = progress
        self._leader_endpoint = leader_endpoint
        self._parked: dict[ReplicaKey, _Parked] = {}
        driver.watch(self._look_again)

    @property
    def parked(self) -> int:
        return len(self._parked)

    def fetch(self, request: wire.FetchRequest, version: int) -> Promise[wire.FetchResponse]:
        done = Promise[wire.FetchResponse].resolved
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            return done(wire.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        asked = only_partition(request.topics, lambda one: one.partition)
        if asked is None or version < FIRST_WITH_IDS or not asks_for_metadata(request, version):
            return done(wire.FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
        if (
            request.max_wait_ms < 0
            or asked.fetch_offset < 0
            or asked.last_fetched_epoch < 0
            or asked.last_fetched_epoch > asked.current_leader_epoch
        ):
            return done(self._response(self._refused(ErrorCode.INVALID_REQUEST), version))
        id = request.replica_state.replica_id if version >= FIRST_WITH_STATE else request.replica_id
        replica = ReplicaKey(id, asked.replica_directory_id)
        answer = self._look(asked, replica, request.max_bytes, first=True)
        if not self._is_worth_waiting(answer, asked) or not request.max_wait_ms or len(self._parked) >= PARKED_MAX:
            return done(self._response(answer, version))
        return self._park(asked, version, replica, min(request.max_wait_ms, WAIT_MAX_MS))

    def _park(
        self, asked: wire.FetchPartition, version: int, replica: ReplicaKey, wait_ms: int
    ) -> Promise[wire.FetchResponse]:
        self._answer(replica)  # the one before it, which nobody waits for any more
        response: Promise[wire.FetchResponse] = Promise()
        timer = self._env.loop.call_later(wait_ms / 1000, lambda: self._expire(response, replica))
        self._parked[replica] = _Parked(asked, version, replica, response, timer)
        return response

    def _expire(self, response: Promise[wire.FetchResponse], replica: ReplicaKey) -> None:
        parked = self._parked.get(replica)
        if parked is not None and parked.response is response:
            self._answer(replica)

    def _answer(self, replica: ReplicaKey, answer: wire.PartitionData | None = None) -> None:
        parked = self._parked.pop(replica, None)
        if parked is not None:
            parked.timer.cancel()
            answer = answer or self._look(parked.asked, replica, READ_BYTES_MAX)
            parked.response.resolve(self._response(answer, parked.version))

    def _look_again(self) -> None:
        for replica, parked in list(self._parked.items()):
            answer = self._look(parked.asked, replica, READ_BYTES_MAX)
            if not self._is_worth_waiting(answer, parked.asked) and self._parked.get(replica) is parked:
                self._answer(replica, answer)

    @staticmethod
    def _is_worth_waiting(answer: wire.PartitionData, asked: wire.FetchPartition) -> bool:
        return (
            answer.error_code == ErrorCode.NONE
            and not answer.records
            and answer.diverging_epoch.epoch < 0
            and answer.snapshot_id.epoch < 0
            and answer.high_watermark <= asked.high_watermark
        )

    def _look(
        self, asked: wire.FetchPartition, replica: ReplicaKey, max_bytes: int, *, first: bool = False
    ) -> wire.PartitionData:
        """What would be answered now. The `first` look at a fetch is what counts for how far the replica has come."""
        driver = self._driver
        end = LogEnd(asked.last_fetched_epoch, asked.fetch_offset)
        if driver.stopped or driver.offline is not None:
            return self._refused(ErrorCode.BROKER_NOT_AVAILABLE)
        fetch = Fetch(replica, asked.current_leader_epoch, end)
        match answer_fetch(driver.quorum, driver.log, driver.snapshots, fetch):
            case Refused(error):
                return self._refused(error)
            case Diverging(parted):
                answer = self._empty()
                answer.diverging_epoch = wire.EpochEndOffset(epoch=parted.epoch, end_offset=parted.offset)
                return answer
            case SnapshotNeeded(snapshot):
                answer = self._empty()
                answer.snapshot_id = wire.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
                return answer
            case Served():
                return self._served(asked.fetch_offset, replica, max_bytes, first)

    def _served(self, offset: int, replica: ReplicaKey, max_bytes: int, first: bool) -> wire.PartitionData:
        driver = self._driver
        if first and replica.id >= 0:
            now_ms = self._env.clock.now_ms()
            self._progress.fetched(driver.epoch, replica, offset, driver.log_end, now_ms)
            driver.handle(ReplicaFetched(replica, offset))
        try:
            records = driver.log.read(offset, max(1, min(max_bytes, READ_BYTES_MAX)))
        except KafkaError as error:
            return self._refused(error.code)
        answer = self._empty()
        answer.records = records
        return answer

    def _empty(self) -> wire.PartitionData:
        """What is told in any case. A leader that has committed nothing in its epoch may know of less than is
        committed, and says that it doesn't know: an Apache Kafka ends itself where a high watermark falls."""
        driver = self._driver
        known = driver.high_watermark if driver.leads else UNKNOWN
        return wire.PartitionData(high_watermark=known, log_start_offset=driver.log_start)

    def _refused(self, error: ErrorCode) -> wire.PartitionData:
        answer = self._empty()
        answer.error_code, answer.high_watermark = error, UNKNOWN
        return answer

    def _response(self, answer: wire.PartitionData, version: int) -> wire.FetchResponse:
        """The answer with who leads which epoch: also a good one, by which an observer finds its leader."""
        driver = self._driver
        answer.current_leader = wire.LeaderIdAndEpoch(leader_id=driver.leader_id, leader_epoch=driver.epoch)
        topic = wire.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[answer])
        endpoint = self._leader_endpoint() if version >= FIRST_WITH_ENDPOINTS else None
        nodes = (
            []
            if endpoint is None
            else [wire.NodeEndpoint(node_id=driver.leader_id, host=endpoint.host, port=endpoint.port)]
        )
        return wire.FetchResponse(responses=[topic], node_endpoints=nodes)
