"""Settings of topics and of the broker that are changed while everything runs; none of them may break a promise."""

from tidelog.sim.clients.actor import RETRY_S, Client
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.topics import TOPIC_RESOURCE
from tidelog.sim.world.random import SimRandom
from tidelog.sim.world.world import World
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

BROKER_RESOURCE = 4
TOPIC_SETTINGS = {
    "segment.ms": ("50", "300", "604800000"),
    "segment.bytes": ("1048576", "1073741824"),
    "flush.messages": ("1", "5", "9223372036854775807"),
    "flush.ms": ("100", "9223372036854775807"),
    "index.interval.bytes": ("0", "100", "4096"),
    "file.delete.delay.ms": ("0", "100", "60000"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "max.message.bytes": ("100000", "10485760"),
    "tidelog.validate": ("batch", "records"),
}
BROKER_SETTINGS = {
    "log.roll.ms": ("100", "604800000"),
    "log.index.interval.bytes": ("0", "4096"),
    "log.flush.interval.messages": ("1", "9223372036854775807"),
    "message.max.bytes": ("100000", "10485760"),
    "background.threads": ("1", "10"),
}


class SettingsTurner(Client):
    """Gives one of the topics, or the broker, another setting, again and again."""

    def __init__(self, world: World, name: str, random: SimRandom, topics: tuple[str, ...]) -> None:
        self.stopped = False
        self._world = world
        self._topics = topics
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        self.later(self._change, self.random.between(0.02, 0.3))

    def _change(self, connection: ClientConnection) -> None:
        if self.stopped:
            self.later(self._change, RETRY_S)
            return
        of_topic = self.random.chance(0.7)
        settings = TOPIC_SETTINGS if of_topic else BROKER_SETTINGS
        name = self.random.choose(tuple(settings))
        value = self.random.choose(settings[name])
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE if of_topic else BROKER_RESOURCE,
            resource_name=self.random.choose(self._topics) if of_topic else "1",
            configs=[AlterableConfig(name=name, value=value)],
        )
        self.world.note(f"{self.name}: {resource.resource_name} {name}={value}")
        request = IncrementalAlterConfigsRequest(resources=[resource])
        connection.ask(request, IncrementalAlterConfigsResponse, 44, 1, self._answered)

    def _answered(self, response: IncrementalAlterConfigsResponse) -> None:
        answer = response.responses[0]
        if answer.error_code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_CONFIG):
            raise Violation(f"a change of settings was answered {ErrorCode(answer.error_code).name}: {answer}")
        if not answer.error_code:
            self._world.struck("setting changed")
        self.later(self._change, self.random.between(0.02, 0.3))
