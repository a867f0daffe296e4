"""Requests that are for the active controller: what a client hears where nobody is that any more."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.apis.controllers import ControllerNode
from tidelog.apis import envelope
from tidelog.apis.shared.api import Api
from tidelog.apis.shared.forwarding import decided_here, not_decided
from tidelog.env.promise import Promise
from tidelog.machine.decision import Decision
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.header import request_header
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

API = Api(ApiKey.CREATE_TOPICS, 7)
REQUEST = CreateTopicsRequest(
    topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b")], timeout_ms=5000
)
FRAME = request_header(API.key, API.version, 5, "c") + encoder(CreateTopicsRequest, 7)(REQUEST)


@pytest.fixture
def cluster() -> ControllerNode:
    cluster = ControllerNode()
    cluster.join(2)
    return cluster


def ask_and_lose(cluster: ControllerNode, handle: Callable[[Any], Any], channel: Any) -> Any:
    """The answer where the node leads no longer before it has decided."""
    node, controller = cluster.node, cluster.controller

    def long(image: object, now_ms: int):
        while controller.active:
            yield
        return Decision([], None)

    controller.submit_steps(long)
    node.loop.call_later(0.5, lambda: controller.stop_leading(node.raft.epoch))
    cluster.services.channel = channel
    context = SimpleNamespace(
        services=cluster.services,
        version=7,
        client_id="c",
        client_host="10.0.0.7",
        correlation_id=5,
        listener="CONTROLLER",
        connection_id=1,
    )
    answer = node.loop.drive(handle(context))
    cluster.world.settle(answer)
    return answer.result()


class Channel:
    """To the controllers. `answer`: what they say."""

    def __init__(self, answer: Promise[Any], *, is_here: bool = True) -> None:
        self.asked: list[EnvelopeRequest] = []
        self.is_here = is_here
        self._answer = answer

    def ask(self, request: EnvelopeRequest, timeout_ms: int) -> Promise[Any]:
        self.asked.append(request)
        return self._answer


def test_request_that_was_not_decided_here_is_passed_on_to_the_next_controller(cluster: ControllerNode) -> None:
    channel = Channel(Promise[Any].resolved(EnvelopeResponse(response_data=b"answer")))
    frame = ask_and_lose(cluster, lambda context: decided_here(API, context, REQUEST), channel)
    assert frame == b"\0\0\0\6answer"
    assert [bytes(request.request_data) for request in channel.asked] == [FRAME]


def test_request_that_no_controller_decides_has_timed_out(cluster: ControllerNode) -> None:
    channel = Channel(Promise[Any].failed(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))
    response: CreateTopicsResponse = ask_and_lose(cluster, lambda context: decided_here(API, context, REQUEST), channel)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", ErrorCode.REQUEST_TIMED_OUT),
        ("b", ErrorCode.REQUEST_TIMED_OUT),
    ]


def test_broker_that_heard_of_no_controller_says_that_the_time_is_over(cluster: ControllerNode) -> None:
    cluster.controller.stop_leading(cluster.node.raft.epoch)
    context: Any = SimpleNamespace(services=cluster.services, version=7, client_id="c", client_host="10.0.0.7")
    answer = cluster.node.loop.drive(not_decided(API, context, REQUEST))
    cluster.world.settle(answer)
    assert {topic.error_code for topic in answer.result().topics} == {ErrorCode.REQUEST_TIMED_OUT}


def test_envelope_that_was_not_decided_is_sent_again_by_the_broker(cluster: ControllerNode) -> None:
    """Each topic in the answer says so; the envelope has to."""
    channel = Channel(Promise[Any]())
    answer: EnvelopeResponse = ask_and_lose(
        cluster, lambda context: envelope.handle(context, envelope.wrap(FRAME, "10.0.0.7")), channel
    )
    assert answer == EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
