"""A topic whose settings change while data is there: when its records are synced, how they are flushed and indexed.

What was acknowledged with acks=all while `tidelog.durability=fsync` was known to hold is there for good, whatever the
topic was set to before and afterwards.
"""

from tidelog.sim.clients.actor import RETRY_S, Client, ClientWorld
from tidelog.sim.clients.connection import ClientConnection
from tidelog.sim.clients.workloads import FATAL, make_values, only_answer, produce_request
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.topics import TOPIC_RESOURCE
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import build
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.produce import ProduceResponse
from tidelog.wire.record import Record

DURABILITY = "tidelog.durability"
NEVER = str(2**63 - 1)
CHOICES: dict[str, tuple[str, ...]] = {
    DURABILITY: ("fsync", "os"),
    "flush.messages": ("1", "7", NEVER),
    "flush.ms": ("1", "100", NEVER),
    "internal.segment.bytes": ("20000", "60000", "1048576"),
    "index.interval.bytes": ("0", "500", "4096"),
    "compression.type": ("producer", "zstd", "uncompressed"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "tidelog.validate": ("batch", "records"),
}
GRACE_S = 1.0
"""A change whose connection was lost is made until then, or never."""


class Switcher(Client):
    """Sends records, one batch at a time, and changes settings in between."""

    def __init__(self, world: ClientWorld, name: str, random: SimRandom, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.stopped = False
        self.switches = 0
        self._made = 0
        self._durability: str | None = None  # None: not known
        self._changing = False
        super().__init__(world, name, random)

    def connected(self, connection: ClientConnection) -> None:
        if self._changing:
            self._changing = False
            self.later(self._change, GRACE_S)
        else:
            self._go_on(connection)

    def lost(self) -> None:
        if self._changing:
            self._durability = None

    def _go_on(self, connection: ClientConnection) -> None:
        if self.stopped:
            return
        if self._durability is None or self.random.chance(0.2):
            self._change(connection)
        else:
            self._send(connection)

    def _change(self, connection: ClientConnection) -> None:
        wanted = {name: self.random.choose(values) for name, values in CHOICES.items() if self.random.chance(0.3)}
        if self._durability is None or not wanted:
            wanted[DURABILITY] = self.random.choose(CHOICES[DURABILITY])
        self._changing = True
        configs = [AlterableConfig(name=name, value=value) for name, value in wanted.items()]
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=self.topic, configs=configs)

        def answered(response: IncrementalAlterConfigsResponse) -> None:
            code = ErrorCode(response.responses[0].error_code)
            self.world.note(f"{self.name} sets {wanted}: {code.name}")
            self._changing = False
            if not code:
                self.switches += 1
                self._durability = wanted.get(DURABILITY, self._durability)
            elif code in FATAL:
                raise Violation(f"IncrementalAlterConfigs answered {response.responses[0]} to {wanted}")
            elif DURABILITY in wanted:
                self._durability = None
            self.later(self._go_on, RETRY_S if code else 0.0)

        request = IncrementalAlterConfigsRequest(resources=[resource])
        connection.ask(request, IncrementalAlterConfigsResponse, 44, 1, answered)

    def _send(self, connection: ClientConnection) -> None:
        values = make_values(self.random, self.name, self._made)
        self._made += len(values)
        encoded = build([Record(timestamp=self.world.timeline.now_ms(), value=value) for value in values])

        def answered(response: ProduceResponse) -> None:
            answer = only_answer(response)
            code = ErrorCode(answer.error_code)
            self.world.note(f"{self.name} {len(values)} {self._durability}: {code.name} {answer.base_offset}")
            if code in FATAL:
                raise Violation(f"{self.topic}-{self.partition} answered {code.name}: {answer.error_message}")
            if not code and self._durability == "fsync":
                self.world.history.saw_lasting(self.topic, self.partition, answer.base_offset, values)
            self.later(self._go_on, self.random.between(0.0, 0.05))

        request = produce_request(self.topic, self.partition, bytes(encoded), -1)
        connection.ask(request, ProduceResponse, 0, 12, answered)
