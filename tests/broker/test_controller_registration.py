"""How a controller names itself to the one that decides, and what two of one id do to the metadata log."""

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog.broker.controller_registration import LOOK_S, ControllerRegistration
from tidelog.env import Environment
from tidelog.env.promise import Promise
from tidelog.metadata.image import EMPTY_IMAGE, ControllerImage
from tidelog.metadata.versions import MV_3_7_IV0
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.loop import SimLoop, Timeline
from tidelog.sim.world.network import SimNetwork
from tidelog.sim.world.random import SimRandom
from tidelog.wire.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse

NODE = 3


class Metadata:
    """What was decided, as all nodes know it."""

    def __init__(self) -> None:
        self.image = replace(EMPTY_IMAGE, features={"metadata.version": MV_3_7_IV0})
        self.registered: list[bytes] = []
        self.subscribers: list[Any] = []
        random = SimRandom(1)
        self.timeline = Timeline()
        self.loop = SimLoop(self.timeline, random.fork("loop"))
        view = SimNetwork(self.timeline, random.fork("network")).view("controller")
        self.env = Environment(self.timeline, self.loop, SimDisk(random), view, random)

    def subscribe(self, subscriber: Any) -> None:
        self.subscribers.append(subscriber)

    def ask(self, request: ControllerRegistrationRequest, timeout_ms: int) -> Promise[Any]:
        self.registered.append(request.incarnation_id)
        registered = ControllerImage(request.controller_id, request.incarnation_id, (), {})
        self.image = replace(self.image, controllers={request.controller_id: registered})
        for subscriber in self.subscribers:
            subscriber()
        return Promise[Any].resolved(ControllerRegistrationResponse())

    def start(self, incarnation: int) -> None:
        """A process with the node id that all of them have."""
        local = SimpleNamespace(key=SimpleNamespace(id=NODE), endpoints=())
        raft = SimpleNamespace(local=local, stopped=False)
        controller = SimpleNamespace(raft=raft, active=False, incarnation_id=bytes([incarnation]) * 16)
        ControllerRegistration(self.env, cast(Any, controller), cast(Any, self), cast(Any, self)).start()


def test_controller_takes_the_place_of_its_old_incarnation_at_once() -> None:
    metadata = Metadata()
    metadata.ask(ControllerRegistrationRequest(controller_id=NODE, incarnation_id=bytes([1]) * 16), 0)
    metadata.start(2)
    assert metadata.registered[-1] == bytes([2]) * 16


def test_two_controllers_of_one_id_do_not_fill_the_metadata_log(caplog: pytest.LogCaptureFixture) -> None:
    metadata = Metadata()
    metadata.start(1)
    with caplog.at_level(logging.WARNING):
        metadata.start(2)
        metadata.timeline.run_until(lambda: False, 10 * LOOK_S)
    assert len(metadata.registered) <= 2 * 11
    assert f"another process says that it is controller {NODE} of this cluster, too" in caplog.text
