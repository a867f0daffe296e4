"""A cluster as a client sees it: who leads what, a connection to each broker, calls that outlive a leader change."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from tidelog.rpc.address import Address, addresses
from tidelog.rpc.bounds import COORDINATORS_MAX, TOPICS_MAX
from tidelog.rpc.connection import Connection
from tidelog.rpc.errors import Lost, Unreachable
from tidelog.rpc.options import Options
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
logger = logging.getLogger("tidelog.rpc")


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes
    partitions: dict[int, Partition]
    internal: bool


class Cluster:
    """Connections are opened when they are needed and kept; not for use by two threads at once."""

    def __init__(self, bootstrap: str, options: Options | None = None) -> None:
        self.options = options or Options()
        self.bootstrap = bootstrap
        self._seeds = addresses(bootstrap)
        self._tls = self.options.tls_context()
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._open: dict[Address, Connection] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        """The topics that are there: those of `names`, or all. None is made by asking; one without leaders counts."""
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        return self.patiently("list the topics", lambda: self._metadata(request))

    def topic(self, name: str, *, fresh: bool = False) -> Topic:
        """One topic; UNKNOWN_TOPIC_OR_PARTITION where there is none of this name."""
        known = None if fresh else self._topics.get(name)
        if known is None:
            known = self.topics([name]).get(name)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name} at {self.bootstrap}")
        return known

    def knows(self, topic: str) -> bool:
        """Whether its leaders can be told without asking."""
        return topic in self._topics

    def leader(self, topic: str, partition: int) -> tuple[Connection, Partition]:
        """A connection to the partition's leader, as far as is known; LEADER_NOT_AVAILABLE where it has none now."""
        known = self.topic(topic).partitions.get(partition)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {partition}")
        address = self._brokers.get(known.leader)
        if address is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return self.connection(address), known

    def coordinator(self, kind: int, key: str, find: Callable[[], Address]) -> Connection:
        """A connection to whoever coordinates a group or a transactional id: as it was found, until something fails."""
        address = self._coordinators.get((kind, key))
        if address is None:
            if len(self._coordinators) >= COORDINATORS_MAX:
                self._coordinators.clear()
            address = self._coordinators[kind, key] = find()
        return self.connection(address)

    def brokers(self) -> list[tuple[int, Connection]]:
        """A connection to each broker of the cluster, by its id."""
        return [(node_id, self.connection(address)) for node_id, address in self.broker_addresses()]

    def broker_addresses(self) -> list[tuple[int, Address]]:
        """Each broker of the cluster, by its id, and where it says that it listens."""
        self._metadata(MetadataRequest(topics=[]))
        return sorted(self._brokers.items())

    def any(self) -> Connection:
        """A connection to whichever broker answers first: known ones, then those of the bootstrap list."""
        trouble: Exception | None = None
        for address in [*self._open, *self._brokers.values(), *self._seeds]:
            try:
                return self.connection(address)
            except Lost as error:
                trouble = error
        raise trouble or Lost(self.bootstrap, "no address")

    def every(self) -> list[Connection]:
        """A connection to each broker that is known."""
        if not self._brokers:
            self._metadata(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return [self.connection(address) for address in self._brokers.values()]

    def connection(self, address: Address) -> Connection:
        known = self._open.get(address)
        if known is None:
            known = self._open[address] = Connection(address, self.options, self._tls)
        return known

    def forget(self) -> None:
        """Ask anew for leaders and coordinators on the next use."""
        self._topics.clear()
        self._coordinators.clear()

    def drop(self, address: object) -> None:
        """Let go of a connection that broke."""
        for known in [known for known in self._open if str(known) == str(address)]:
            self._open.pop(known).close()

    def patiently(self, doing: str, call: Callable[[], T]) -> T:
        """The result of `call`, tried again with fresh metadata after what may pass, until patience runs out.

        A KafkaError that asking again can't mend is raised at once; so is one that is still there at the deadline. A
        topic that isn't there is waited for only so long as brokers may differ about it.
        """
        began = time.monotonic()
        deadline = began + self.options.patience_s
        pause_s = self.options.backoff_s
        warned = False
        while True:
            try:
                return call()
            except Lost as error:
                self.drop(error.address)
                trouble: Exception = error
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                trouble = error
                if error.code in _UNKNOWN:
                    deadline = min(deadline, began + self.options.unknown_topic_s)
            self.forget()
            if time.monotonic() + pause_s >= deadline:
                if isinstance(trouble, KafkaError):
                    raise trouble
                raise Unreachable(
                    f"no broker at {self.bootstrap} could {doing} within {self.options.patience_s:g} s; last: {trouble}"
                ) from trouble
            if not warned:
                logger.warning("trying again to %s for up to %g s: %s", doing, self.options.patience_s, trouble)
                warned = True
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, self.options.backoff_max_s)

    def _metadata(self, request: MetadataRequest) -> dict[str, Topic]:
        response = self.any().ask(request, MetadataResponse)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), "the broker can't tell its metadata")
        self._brokers = {each.node_id: Address(each.host, each.port) for each in response.brokers}
        topics: dict[str, Topic] = {}
        for each in response.topics:
            code = ErrorCode(each.error_code)
            if code in _UNKNOWN or not each.name:
                continue
            if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                raise KafkaError(code, f"topic {each.name}")
            partitions = {
                one.partition_index: Partition(one.partition_index, one.leader_id, one.leader_epoch)
                for one in each.partitions
            }
            topics[each.name] = Topic(each.name, each.topic_id, partitions, each.is_internal)
        if len(self._topics) + len(topics) > TOPICS_MAX:
            self._topics.clear()
        self._topics.update(topics)
        return topics
