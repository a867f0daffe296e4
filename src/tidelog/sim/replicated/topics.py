"""The replicated topics of a run, and who has to be there for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.sim.replicated.roaming import RoamingClient
from tidelog.sim.scenarios.checkers import Violation
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.sim.cluster.world import ClusterWorld
    from tidelog.sim.world.random import SimRandom
    from tidelog.wire.topic_partition import TopicPartition


class Topic(NamedTuple):
    """`powerless`: it counts on the page cache. `records_go`: its beginning is deleted."""

    name: str
    partitions: int
    replicas: int = 3
    min_isr: int = 2
    powerless: bool = False
    records_go: bool = False
    settings: Mapping[str, str] = {}

    @property
    def places(self) -> list[TopicPartition]:
        return [(self.name, index) for index in range(self.partitions)]


SMALL = {"internal.segment.bytes": "16000"}

TIDE = Topic("tide", 2)
EBB = Topic("ebb", 1, records_go=True, settings=SMALL)
LOOSE = Topic("loose", 1, replicas=2, min_isr=1)
SURF = Topic("surf", 1, powerless=True)
PACT = Topic("pact", 3)
TOPICS = (TIDE, EBB, LOOSE, PACT)
"""Written by idempotent producers; with records that are deleted; with two replicas of which one is enough; in
transactions. `SURF` counts on the page cache, and is there in some runs only."""


class TopicsMaker(RoamingClient):
    """Makes them, and is `done`."""

    def __init__(self, world: ClusterWorld, random: SimRandom, topics: Sequence[Topic]) -> None:
        self.done = False
        self._topics = [
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replicas,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings_of(topic).items()],
            )
            for topic in topics
        ]
        super().__init__(world, "makes topics", random)

    def begin(self) -> None:
        self.ask_any(CreateTopicsRequest(topics=self._topics), CreateTopicsResponse, 19, 7, self._answered)

    def _answered(self, response: CreateTopicsResponse | None) -> None:
        codes = set[ErrorCode]() if response is None else {ErrorCode(topic.error_code) for topic in response.topics}
        if codes and codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            self.done = True
            return
        if codes & {ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR}:
            raise Violation(f"CreateTopics answered {sorted(code.name for code in codes)}: {response}")
        self.later(self.begin)


def settings_of(topic: Topic) -> dict[str, str]:
    return {
        "min.insync.replicas": str(topic.min_isr),
        "tidelog.durability": "os" if topic.powerless else "fsync",
        **topic.settings,
    }
