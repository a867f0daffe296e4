"""What the controller decided, as the answer to whoever asked; also where it asked by a call within the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidelog.env.promise import Promise
from tidelog.wire.errors import KafkaError

T = TypeVar("T")
R = TypeVar("R")


def decided(promise: Promise[T], answer: Callable[[T], R], refused: Callable[[KafkaError], R]) -> Promise[R]:
    """`answer(decision)`, or `refused(error)` where it was refused; anything else is a bug and passes on."""

    def finish(promise: Promise[T]) -> R:
        error = promise.error
        return refused(error) if isinstance(error, KafkaError) else answer(promise.result())

    return promise.then(finish)
