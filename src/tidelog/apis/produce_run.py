"""Produce requests that came in one go for one partition, as a client sends them that doesn't wait for each answer.

They are appended with one write (log/append_run.py). Requests that aren't alike, or whose acknowledgement has to wait,
are left to the path of a single one.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any

from tidelog.apis.produce import FLEXIBLE_FROM, IDS_FROM, KEY_BYTES, NAME_LENGTH_AT, TAIL, ProducePath
from tidelog.wire.batch import PRODUCER_AT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.apis.context import Services

RUN_MAX = 64
"""Requests that are taken together."""

_KIND_BYTES = 4
_CLIENT_AT = 12  # behind the size, the API's key and version, and the correlation id
# API key, version, correlation id, bytes of the client id.
_read_header = Struct(">hhih").unpack_from


@lru_cache(128)
def _reader(alike_bytes: int) -> Callable[..., tuple[Any, ...]]:
    """Reads size, key and version, correlation id, all up to the batch, and the first bytes of the batch's length."""
    return Struct(f">i{_KIND_BYTES}si{alike_bytes}sBBB").unpack_from


class ProduceRun:
    def __init__(self, services: Services, path: ProducePath) -> None:
        self._path = path
        self._now_ms = services.env.clock.now_ms
        self._size_max = services.config.socket_request_max_bytes

    def handle(self, buffer: memoryview, start: int, end: int) -> tuple[list[bytes], int] | None:
        """The answers to the frames from `start` on that are alike, and where they end; None: fewer than two are."""
        try:
            api, version, _, client_bytes = _read_header(buffer, start + 4)
            if api or not FLEXIBLE_FROM <= version < IDS_FROM:
                return None
            header_bytes = 2 + client_bytes if client_bytes > 0 else 2
            name_bytes = buffer[start + _CLIENT_AT + header_bytes + NAME_LENGTH_AT]
            alike_bytes = header_bytes + KEY_BYTES + name_bytes
            found = self._alike(buffer, start, end, alike_bytes)
        except (StructError, IndexError):
            return None
        if len(found) < 2:
            return None
        at = start + _CLIENT_AT
        target = self._path.target(buffer[at + header_bytes : at + alike_bytes].tobytes())
        if target is None:
            return None
        partition, _, acks, _, middle, pack, frame_bytes = target
        bases = (
            partition.append_run(buffer, [(at, behind) for at, behind, _ in found], self._now_ms()) if acks else None
        )
        if bases is None:
            return None
        log_start = partition.log.log_start
        answers = [
            pack(frame_bytes, correlation_id, middle, base, -1, log_start, TAIL)
            for (_, _, correlation_id), base in zip(found, bases, strict=True)
        ]
        return answers, found[-1][1] + 3

    def _alike(self, buffer: memoryview, start: int, end: int, alike_bytes: int) -> list[tuple[int, int, int]]:
        """From where to where the batches are, and the correlation ids, of whole frames that are alike up to them."""
        read, size_max = _reader(alike_bytes), self._size_max
        first_kind = first_alike = b""
        found: list[tuple[int, int, int]] = []
        least = _CLIENT_AT + alike_bytes + 3
        while end - start > least and len(found) < RUN_MAX:
            size, kind, correlation_id, alike, first, second, third = read(buffer, start)
            behind = start + 1 + size
            at = start + least - 2
            if first > 127:
                first += (second - 1) << 7
                at += 1
                if second > 127:
                    first += (third - 1) << 14
                    at += 1
                    if third > 127:
                        break
            if (
                not least <= size <= size_max
                or behind + 3 > end
                or at + first - 1 != behind
                or buffer[behind]
                or buffer[behind + 1]
                or buffer[behind + 2]
            ):
                break
            if not found:
                if buffer[at + PRODUCER_AT] < 0x80:  # of an idempotent producer: others have -1 there
                    break
                first_kind, first_alike = kind, alike
            elif alike != first_alike or kind != first_kind:
                break
            found.append((at, behind, correlation_id))
            start = behind + 3
        return found
