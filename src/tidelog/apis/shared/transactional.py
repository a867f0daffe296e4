"""What the APIs of transactions share: errors as older clients know them, and promises that become answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidelog.env.promise import Promise
from tidelog.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
R = TypeVar("R")


def answered(promise: Promise[T], done: Callable[[T], R], refused: Callable[[ErrorCode], R]) -> Promise[R]:
    """The answer to a request that was decided, or refused with a KafkaError; anything else is a bug and passes on."""
    answer: Promise[R] = Promise()

    def settled(promise: Promise[T]) -> None:
        error = promise.error
        if error is None:
            answer.resolve(done(promise.result()))
        elif isinstance(error, KafkaError):
            answer.resolve(refused(error.code))
        else:
            answer.fail(error)

    promise.on_done(settled)
    return answer


def as_known_to(code: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """PRODUCER_FENCED came late: older clients are told INVALID_PRODUCER_EPOCH."""
    if code == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
