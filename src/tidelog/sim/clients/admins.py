"""Clients that change the cluster's metadata: many settings in one change, and topics that come and go.

Each looks before it changes anything, and compares what it finds with what it was told: a change that was answered is
there, one that was refused isn't, and none is there in part.
"""

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.world.random import SimRandom
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

BROKER_RESOURCE = 4
SETTINGS_TOGETHER = 80
VALUE_BYTES = (10, 32_000, 32_000)
"""Of each setting: 80 of the larger ones are a change of more than one batch of the metadata log."""
PREFIX = "sim"
UNCHANGED = 0

REFUSED = frozenset((ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_REPLICATION_FACTOR))
"""The change couldn't be written, and never will be; or the only broker stops, and takes no new replicas."""
UNKNOWN = frozenset((ErrorCode.REQUEST_TIMED_OUT,))
"""The change may be carried out, or not."""


class SettingsChanger(Client):
    """Replaces all its settings by others in one change, again and again: settings of two changes never stand together.

    The number of a change is part of its settings' names, since the broker keeps the values of unknown ones secret.
    """

    def __init__(self, world: ClientWorld, name: str, random: SimRandom) -> None:
        self.changes = 0
        """How many were answered."""
        self.looks = 0
        self.stopped = False
        self._sent = 0
        self._possible = {UNCHANGED}
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None)
        connection.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 32, 4, self._looked)

    def _looked(self, response: DescribeConfigsResponse) -> None:
        result = response.results[0]
        if result.error_code:
            raise Violation(f"DescribeConfigs answered {ErrorCode(result.error_code).name}: {result.error_message}")
        names = [entry.name for entry in result.configs if entry.name.startswith(f"{PREFIX}.")]
        counts: dict[int, int] = {}
        for name in names:
            number = int(name.split(".")[1])
            counts[number] = counts.get(number, 0) + 1
        if len(counts) > 1 or any(count != SETTINGS_TOGETHER for count in counts.values()):
            raise Violation(f"changes of {SETTINGS_TOGETHER} settings each are there in part: {counts}")
        current = next(iter(counts), UNCHANGED)
        if current not in self._possible:
            raise Violation(f"the settings are those of change {current}, not of one of {sorted(self._possible)}")
        self.looks += 1
        if self.stopped:
            self.later(self.connected, RETRY_S)
        else:
            self.later(self._change, self.random.between(0.02, 0.2))

    def _change(self, connection: ClientConnection) -> None:
        self._sent += 1
        number, filling = self._sent, "x" * self.random.choose(VALUE_BYTES)
        configs = [
            AlterableConfig(name=f"{PREFIX}.{number}.{index}", value=filling) for index in range(SETTINGS_TOGETHER)
        ]
        resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configs=configs)
        self._possible.add(number)

        def answered(response: AlterConfigsResponse) -> None:
            code = ErrorCode(response.responses[0].error_code)
            self.world.note(f"{self.name} change {number}: {code.name}")
            if code == ErrorCode.NONE:
                self.changes += 1
                self._possible = {number}
            elif code in REFUSED:
                self._possible.discard(number)
            elif code not in UNKNOWN:
                raise Violation(f"AlterConfigs answered {code.name}: {response.responses[0].error_message}")
            self.later(self.connected, RETRY_S)

        connection.ask(AlterConfigsRequest(resources=[resource]), AlterConfigsResponse, 33, 2, answered)


class TopicKeeper(Client):
    """Makes topics and deletes some of them; those it was told of are there, under their ids, and no others.

    `_expected`: the ids of topics that are there; `_doubtful`: those of which it isn't known.
    """

    def __init__(self, world: ClientWorld, name: str, random: SimRandom) -> None:
        self.changes = 0
        """How many were answered."""
        self.looks = 0
        self.stopped = False
        self._made = 0
        self._expected: dict[str, bytes] = {}
        self._doubtful: set[str] = set()
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        connection.ask(request, MetadataResponse, 3, 12, self._looked)

    def _looked(self, response: MetadataResponse) -> None:
        ids = {topic.name: topic.topic_id for topic in response.topics if topic.name is not None}
        for name, topic_id in self._expected.items():
            if name not in self._doubtful and ids.get(name) != topic_id:
                raise Violation(f"topic {name} is {_hex(ids.get(name))}, but {_hex(topic_id)} was made and kept")
        unknown = ids.keys() - self._expected.keys() - self._doubtful
        if unknown:
            raise Violation(f"topics {sorted(unknown)} are there, though they were refused or deleted")
        self.looks += 1
        if self.stopped:
            self.later(self.connected, RETRY_S)
        elif self._expected and self.random.chance(0.3):
            self.later(self._delete, self.random.between(0.0, 0.1))
        else:
            self.later(self._create, self.random.between(0.0, 0.1))

    def _create(self, connection: ClientConnection) -> None:
        name = f"made{self._made}"
        self._made += 1
        self._doubtful.add(name)

        def answered(response: CreateTopicsResponse) -> None:
            topic = response.topics[0]
            if self._settled(name, ErrorCode(topic.error_code), "made"):
                self._expected[name] = topic.topic_id
            self.later(self.connected, RETRY_S)

        topic = CreatableTopic(name=name, num_partitions=self.random.random_int(1, 3), replication_factor=1)
        connection.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 19, 7, answered)

    def _delete(self, connection: ClientConnection) -> None:
        sure = sorted(self._expected.keys() - self._doubtful)
        if not sure:
            self.later(self._create, RETRY_S)
            return
        name = self.random.choose(sure)
        self._doubtful.add(name)

        def answered(response: DeleteTopicsResponse) -> None:
            if self._settled(name, ErrorCode(response.responses[0].error_code), "deleted"):
                del self._expected[name]
            self.later(self.connected, RETRY_S)

        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=3000)
        connection.ask(request, DeleteTopicsResponse, 20, 6, answered)

    def _settled(self, name: str, code: ErrorCode, what: str) -> bool:
        """Whether the change was carried out; where that isn't known the topic stays a doubtful one."""
        self.world.note(f"{self.name} {name} is {what}: {code.name}")
        if code not in UNKNOWN:
            self._doubtful.discard(name)
        if code != ErrorCode.NONE and code not in UNKNOWN and code not in REFUSED:
            raise Violation(f"topic {name} was to be {what}; the answer was {code.name}")
        self.changes += code == ErrorCode.NONE
        return code == ErrorCode.NONE


def _hex(topic_id: bytes | None) -> str:
    return "not there" if topic_id is None else topic_id.hex()
