"""A group's offsets from outside of it: what its coordinator says when it can't tell them yet, and when it can."""

import socket
import threading
from collections.abc import Iterator
from struct import Struct

import pytest

from tidelog.rpc import Cluster, Options
from tidelog.rpc.groups import commit_offsets, committed_offset
from tidelog.rpc.topics import create_topic
from tidelog.testing import Broker
from tidelog.wire.codec import encoder
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.header import has_response_tags
from tidelog.wire.keys import ApiKey
from tidelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorResponse
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

PLACE = ("tides", 0)
_HEAD = Struct(">ihhi")


class Coordinator:
    """Speaks for a broker: `said` are its answers to OffsetFetch, one after the other."""

    def __init__(self, said: list[OffsetFetchResponse]) -> None:
        self.said = said
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        with client, client.makefile("rb") as stream:
            while head := stream.read(_HEAD.size):
                size, key, version, correlation_id = _HEAD.unpack(head)
                stream.read(size + 4 - _HEAD.size)
                answer = self._answer(key)
                body = encoder(type(answer), version)(answer)
                tags = b"\0" if has_response_tags(key, version) else b""
                client.sendall(Struct(">ii").pack(4 + len(tags) + len(body), correlation_id) + tags + body)

    def _answer(self, key: int) -> object:
        if key == ApiKey.API_VERSIONS:
            served = [(ApiKey.FIND_COORDINATOR, 3), (ApiKey.OFFSET_FETCH, 7)]
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=each, min_version=version, max_version=version) for each, version in served
                ]
            )
        if key == ApiKey.FIND_COORDINATOR:
            return FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=self.port)
        return self.said.pop(0)

    def close(self) -> None:
        self._listener.close()
        self._thread.join()


def told(offset: int) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=offset, metadata="note")
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="tides", partitions=[partition])])


def ask(said: list[OffsetFetchResponse]) -> tuple[int, str] | None:
    coordinator = Coordinator(said)
    try:
        with Cluster(f"127.0.0.1:{coordinator.port}", Options(backoff_s=0.01)) as cluster:
            return committed_offset(cluster, "crew", PLACE)
    finally:
        coordinator.close()


def test_a_coordinator_that_is_loading_is_asked_again() -> None:
    """Its answer has an error for the group, and no topics."""
    loading = OffsetFetchResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    moved = OffsetFetchResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert ask([loading, moved, told(7)]) == (7, "note")


def test_what_asking_again_cannot_mend_is_said_at_once() -> None:
    refused = OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match="the offsets of group crew"):
        ask([refused])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_what_was_committed_is_found_and_else_nothing(broker: Broker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        create_topic(cluster, "tides", 1)
        assert committed_offset(cluster, "crew", PLACE) is None
        commit_offsets(cluster, "crew", {PLACE: 7})
        assert committed_offset(cluster, "crew", PLACE) == (7, "")
