"""The topics of a run, with settings that its seed chose."""

from collections.abc import Mapping

from tidelog.sim.clients.actor import Client
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.world import World
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC_RESOURCE = 2
POWERLESS = frozenset(("surf", "swell"))
"""Topics that count on the page cache, `swell` only now and then."""
FORGETFUL = frozenset(("foam",))
"""Topics that are in memory."""


class TopicSetter(Client):
    """Gives a topic another setting, again and again until that is so."""

    def __init__(self, world: World, random: SimRandom, topic: str, name: str, value: str) -> None:
        self.done = False
        self._resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[AlterableConfig(name=name, value=value)]
        )
        super().__init__(world, f"sets {topic}", random)

    def connected(self, connection: ClientConnection) -> None:
        request = IncrementalAlterConfigsRequest(resources=[self._resource])
        connection.ask(request, IncrementalAlterConfigsResponse, 44, 1, self._answered)

    def _answered(self, response: IncrementalAlterConfigsResponse) -> None:
        self.done = not response.responses[0].error_code
        if not self.done:
            self.later(self.connected, 0.1)


class TopicMaker(Client):
    """Creates the topics, again and again until they are there."""

    def __init__(
        self,
        world: World,
        random: SimRandom,
        topics: Mapping[str, int],
        settings: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.done = False
        self._settings = settings or {}
        self._topics = [self._topic(random, name, count) for name, count in topics.items()]
        super().__init__(world, "admin", random)

    def _topic(self, random: SimRandom, name: str, partitions: int) -> CreatableTopic:
        configs = {
            "internal.segment.bytes": str(random.choose((20_000, 60_000, 1 << 20))),
            "index.interval.bytes": str(random.choose((0, 500, 4096))),
            "message.timestamp.type": random.choose(("CreateTime", "CreateTime", "LogAppendTime")),
            "compression.type": random.choose(("producer", "producer", "producer", "zstd", "uncompressed")),
            "tidelog.durability": "os" if name in POWERLESS else "fsync",
            "tidelog.storage": "memory" if name in FORGETFUL else "disk",
            "tidelog.validate": random.choose(("batch", "batch", "records")),
        }
        configs |= self._settings.get(name, {})
        return CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )

    def connected(self, connection: ClientConnection) -> None:
        connection.ask(CreateTopicsRequest(topics=self._topics), CreateTopicsResponse, 19, 7, self._answered)

    def _answered(self, response: CreateTopicsResponse) -> None:
        codes = {ErrorCode(topic.error_code) for topic in response.topics}
        if codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            self.done = True
            return
        if unexpected := codes - {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT}:
            raise Violation(f"CreateTopics answered {sorted(code.name for code in unexpected)}: {response.topics}")
        self.later(self.connected, 0.1)
