"""Batches of one transaction that are sent before the ones before them are answered, and what a broker may say to them.

A client keeps each batch until it is acknowledged and sends it again after an error that goes away by itself, or over
another connection; in order. Whatever the broker says in between, the first batch of a partition that isn't
acknowledged is next in order there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

GOES_AWAY = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,  # of a batch behind one that was refused
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""After these a batch is sent again."""
TAKEN = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
NEVER = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
)
"""What no broker may answer to a batch that is next in order, however old its sender is."""


@dataclass(slots=True, eq=False)
class Part:
    """A batch, and whether it is known to be in the log."""

    topic: str
    index: int
    sequence: int
    encoded: bytes
    taken: bool = False


class InFlight:
    """The batches of one transaction, by request."""

    def __init__(self, label: str, requests: Iterable[Sequence[Part]]) -> None:
        self._label = label
        self._requests = [list(parts) for parts in requests]
        self.rounds = 0
        self.codes: set[ErrorCode] = set()
        """What was said in the present round to those that weren't taken."""

    @property
    def taken(self) -> bool:
        return not self._left()

    @property
    def may_go_on(self) -> bool:
        """Whether it helps to send what is left once more."""
        return self.codes <= GOES_AWAY

    def _left(self) -> list[list[Part]]:
        left = [[part for part in parts if not part.taken] for parts in self._requests]
        return [parts for parts in left if parts]

    def next_round(self) -> list[list[Part]]:
        """What is to be sent, or sent again: requests in order."""
        self.rounds += 1
        self.codes = set()
        return self._left()

    def answer(self, parts: Sequence[Part], codes: Sequence[int]) -> None:
        """What the broker said to one request."""
        for part, number in zip(parts, codes, strict=True):
            code = ErrorCode(number)
            if code in TAKEN:
                part.taken = True
                continue
            self.codes.add(code)
            if code in NEVER and self._is_next(part):
                raise Violation(
                    f"{self._label} sent sequence {part.sequence} to {part.topic}-{part.index}, all before it was "
                    f"acknowledged, and got {code.name} (round {self.rounds})"
                )

    def _is_next(self, part: Part) -> bool:
        place = (part.topic, part.index)
        return all(
            other.taken or other.sequence >= part.sequence
            for parts in self._requests
            for other in parts
            if (other.topic, other.index) == place
        )


def request_of(transactional_id: str, parts: Iterable[Part]) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for part in parts:
        topic = topics.setdefault(part.topic, TopicProduceData(name=part.topic, partition_data=[]))
        topic.partition_data.append(PartitionProduceData(index=part.index, records=memoryview(part.encoded)))
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=3000, topic_data=list(topics.values()))
