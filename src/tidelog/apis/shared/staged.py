"""An answer in two stages, of a request that has appended before it may be answered.

A connection's requests take effect in their order. Until one has appended, which may take a coordinator's word or more
than one turn of the loop, those behind it on its connection wait; from then on they may run ahead of its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from tidelog.env.promise import Promise

T = TypeVar("T")
U = TypeVar("U")


class Staged(Generic[T]):
    """`appended` is settled when the request changes nothing any more, whether it came to anything or not.

    None: that is so already. `answer` is settled no sooner; None as its value: the request gets no answer.
    """

    __slots__ = ("answer", "appended")

    def __init__(self, answer: Promise[T | None], appended: Promise[None] | None = None) -> None:
        self.answer = answer
        self.appended = appended if appended is not None and not appended.done else None


def staged_after(first: Promise[U], go_on: Callable[[U], T | Staged[T] | None]) -> Staged[T]:
    """What `go_on` makes of a promise's value, once that is there; what either of them raises is the answer's error."""
    answer: Promise[T | None] = Promise()
    appended: Promise[None] = Promise()

    def settled(promise: Promise[U]) -> None:
        failure, response = None, None
        try:
            response = go_on(promise.result())
        except Exception as error:
            failure = error
        if isinstance(response, Staged):
            staged = cast("Staged[T]", response)
            if staged.appended is None:
                appended.resolve(None)
            else:
                staged.appended.on_done(lambda _: appended.resolve(None))
            staged.answer.on_done(_pass_on(answer))
            return
        appended.resolve(None)
        if failure is not None:
            answer.fail(failure)
        else:
            answer.resolve(response)

    first.on_done(settled)
    return Staged(answer, appended)


def _pass_on(to: Promise[T]) -> Callable[[Promise[T]], None]:
    def settle(promise: Promise[T]) -> None:
        if promise.error is not None:
            to.fail(promise.error)
        else:
            to.resolve(promise.result())

    return settle
