"""What a node asks of the active controller goes to whoever leads, as soon as somebody does."""

from types import SimpleNamespace
from typing import Any, cast

from tidelog.apis.shared.controller_channel import RETRY_MS_MAX, ControllerChannel
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.raft.events import NO_LEADER
from tidelog.raft.voters import Endpoint
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.random import SimRandom


class Quorum:
    """What a channel looks at: who leads the metadata log. Its leaders answer at once."""

    def __init__(self) -> None:
        self.driver = SimpleNamespace(
            leader_id=NO_LEADER, local=SimpleNamespace(key=SimpleNamespace(id=9)), watch=self._watch
        )
        self.transport = SimpleNamespace(leader_endpoint=None)
        self.asked: list[int] = []

    def _watch(self, changed: Any) -> None:
        self.changed = changed

    def led_by(self, node_id: int) -> None:
        self.driver.leader_id = node_id
        self.transport.leader_endpoint = None if node_id < 0 else Endpoint("CONTROLLER", "host", 1)
        self.changed()

    # -- as the peers

    def at(self, node_id: int, host: str, port: int) -> "Quorum":
        self.asked.append(node_id)
        return self

    def ask(self, request: Any, timeout_ms: int) -> Promise[Any]:
        return Promise[Any].resolved(SimpleNamespace(error_code=0))

    def forget(self, node_id: int) -> None:
        pass


def test_request_that_waits_for_a_controller_goes_to_a_new_one_at_once() -> None:
    timeline, random, quorum = Timeline(), SimRandom(1), Quorum()
    env = Environment(timeline, SimLoop(timeline, random), cast(Any, None), cast(Any, None), random)
    channel = ControllerChannel(env, cast(Any, quorum), cast(Any, quorum), lambda: False, lambda request: request)
    answers = [channel.ask("a heartbeat", 60_000) for _ in range(20)]
    timeline.run_until(lambda: False, 30.0)
    assert quorum.asked == []
    quorum.led_by(3)
    timeline.run_until(lambda: False, timeline.now + RETRY_MS_MAX / 50_000)
    assert quorum.asked == [3] * 20
    assert all(answer.done for answer in answers)
