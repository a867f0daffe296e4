"""The response to a fetch as it is sent: plain bytes, and slices of logs in between."""

from __future__ import annotations

from struct import Struct
from typing import Any

from tidelog.env.slices import Steps
from tidelog.wire.codec import pieces, pieces_steps
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse
from tidelog.wire.release import release

FLEXIBLE_FROM = 12

_frame_plain = Struct(">ii").pack
_frame_flexible = Struct(">iib").pack


def topic_response(topic: str | bytes) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic_id=topic) if isinstance(topic, bytes) else FetchableTopicResponse(topic=topic)


def frame(version: int, correlation_id: int, response: FetchResponse) -> list[Any]:
    """The response as it is sent: its length and header, then bytes and slices of logs in turn."""
    return _framed(version, correlation_id, pieces(FetchResponse, version)(response))


def frame_steps(version: int, correlation_id: int, response: FetchResponse) -> Steps[list[Any]]:
    """As `frame`, of a response that tells of many partitions; nothing is left of it."""
    parts = yield from pieces_steps(FetchResponse, version)(response)
    yield from release(response)
    return _framed(version, correlation_id, parts)


def _framed(version: int, correlation_id: int, parts: list[Any]) -> list[Any]:
    size = sum(map(len, parts))
    if version >= FLEXIBLE_FROM:
        head = _frame_flexible(size + 5, correlation_id, 0)
    else:
        head = _frame_plain(size + 4, correlation_id)
    return [head, *parts]
