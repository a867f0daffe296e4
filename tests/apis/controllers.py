"""An active controller on virtual time, whose handlers are asked as its listener would ask them."""

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, cast

from tests.controller.nodes import World
from tidelog.apis import broker_heartbeat, broker_registration
from tidelog.env.promise import Promise
from tidelog.env.slices import Steps
from tidelog.metadata.image import ClusterImage
from tidelog.metadata.versions import SUPPORTED
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

LOCAL = -1


class ControllerNode:
    """The controller, node 1. `connection` is that of who asks; brokers 2, 3... have connections of that number."""

    def __init__(self) -> None:
        self.world = World()
        self.node = self.world.start()
        self.controller = self.node.controller
        self.services: Any = SimpleNamespace(
            node_id=1,
            cluster_id=self.node.identity.cluster_id,
            config=self.node.config,
            env=self.node.env,
            controller=self.controller,
            metadata=self.node.follower,
        )
        self.epochs: dict[int, int] = {}

    @property
    def image(self) -> ClusterImage:
        self.node.image.check_invariants()
        return self.node.image

    def ask(self, handle: Callable[[Any, Any], Any], request: Any, connection: int = 99, version: int = 0) -> Any:
        context = SimpleNamespace(
            services=self.services,
            connection_id=connection,
            version=version,
            client_id="tests",
            client_host="127.0.0.1",
        )
        answer = handle(context, request)
        if isinstance(answer, Generator):
            answer = self.node.loop.drive(cast("Steps[Any]", answer))
        if not isinstance(answer, Promise):
            return answer
        answer = cast("Promise[Any]", answer)
        self.world.settle(answer)
        return answer.result()

    def register(
        self, broker_id: int, incarnation: bytes = b"first", connection: int | None = None, **more: Any
    ) -> BrokerRegistrationResponse:
        fields: dict[str, Any] = {
            "cluster_id": self.services.cluster_id,
            "listeners": [Listener(name="PLAINTEXT", host=f"host-{broker_id}", port=9092)],
            "log_dirs": [b"directory %6d" % broker_id],
            "rack": None,
            **more,
        }
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            incarnation_id=incarnation.ljust(16),
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED.items()
            ],
            **fields,
        )
        answer = self.ask(broker_registration.handle, request, broker_id if connection is None else connection)
        if not answer.error_code:
            self.epochs[broker_id] = answer.broker_epoch
        return answer

    def beat(self, broker_id: int, connection: int | None = None, **fields: Any) -> BrokerHeartbeatResponse:
        fields = {
            "broker_epoch": self.epochs.get(broker_id, -1),
            "current_metadata_offset": self.image.offset,
            **fields,
        }
        request = BrokerHeartbeatRequest(broker_id=broker_id, **fields)
        return self.ask(broker_heartbeat.handle, request, broker_id if connection is None else connection)

    def join(self, *broker_ids: int) -> None:
        """Each is registered and let in."""
        for broker_id in broker_ids:
            assert self.register(broker_id).error_code == ErrorCode.NONE
            assert not self.beat(broker_id).is_fenced
