"""An answer that comes later, without asyncio: the loop, real or simulated, only calls back."""

from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")


class Promise(Generic[T]):
    """A value or an error that is settled once; callbacks run at once when it already is.

    >>> p: Promise[int] = Promise()
    >>> p.on_done(lambda p: print(p.result()))
    >>> p.resolve(7)
    7
    """

    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Promise[T]], None]] | None = None

    @classmethod
    def resolved(cls, value: T) -> "Promise[T]":
        promise: Promise[T] = cls()
        promise.done = True
        promise._value = value
        return promise

    @classmethod
    def failed(cls, error: BaseException) -> "Promise[T]":
        promise: Promise[T] = cls()
        promise.done = True
        promise._error = error
        return promise

    @property
    def error(self) -> BaseException | None:
        return self._error

    def result(self) -> T:
        """The value; raises the error it failed with. Asking before it is done is a programmer's error."""
        assert self.done, "the promise is not settled yet"
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def resolve(self, value: T) -> None:
        assert not self.done, "a promise is settled once"
        self.done = True
        self._value = value
        self._notify()

    def fail(self, error: BaseException) -> None:
        assert not self.done, "a promise is settled once"
        self.done = True
        self._error = error
        self._notify()

    def on_done(self, callback: "Callable[[Promise[T]], None]") -> None:
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def map(self, transform: Callable[[T], U]) -> "Promise[U]":
        """A promise for `transform(value)`; an error passes through."""
        mapped: Promise[U] = Promise()

        def settle(promise: "Promise[T]") -> None:
            try:
                value = transform(promise.result())
            except BaseException as error:
                mapped.fail(error)
            else:
                mapped.resolve(value)

        self.on_done(settle)
        return mapped

    def then(self, finish: "Callable[[Promise[T]], U]") -> "Promise[U]":
        """A promise for `finish(this one)`, called once it is settled, with a value or an error."""
        finished: Promise[U] = Promise()

        def settle(promise: "Promise[T]") -> None:
            try:
                value = finish(promise)
            except BaseException as error:
                finished.fail(error)
            else:
                finished.resolve(value)

        self.on_done(settle)
        return finished

    def _notify(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)


def gather(promises: list[Promise[T]]) -> Promise[list[Promise[T]]]:
    """A promise that resolves when all are settled, with the promises themselves, in order."""
    all_done: Promise[list[Promise[T]]] = Promise()
    left = len(promises)
    if not left:
        all_done.resolve(promises)
        return all_done

    def one_done(_: Promise[T]) -> None:
        nonlocal left
        left -= 1
        if not left:
            all_done.resolve(promises)

    for promise in promises:
        promise.on_done(one_done)
    return all_done
