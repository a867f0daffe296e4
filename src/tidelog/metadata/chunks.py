"""The partitions of a topic as a sequence that never changes: a changed one shares with it all but a little.

A topic may have 10,000 partitions, and most changes are of one. So they stand in chunks, and a change copies the chunks
that it is in, and the list of chunks: a few hundred references. Reading is as quick as from a tuple of tuples.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar, cast, overload

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

BITS = 7
CHUNK = 1 << BITS
_MASK = CHUNK - 1


class Chunked(Sequence[T_co]):
    """Made by `chunked`; equal to another that holds the same."""

    __slots__ = ("_count", "chunks")

    def __init__(self, chunks: tuple[tuple[T_co, ...], ...] = (), count: int = 0) -> None:
        """All chunks but the last are full, and none is empty."""
        self.chunks = chunks  # written here only
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        if index < 0:
            index += self._count
            if index < 0:
                raise IndexError(index - self._count)
        return self.chunks[index >> BITS][index & _MASK]

    def __iter__(self) -> Iterator[T_co]:
        return chain.from_iterable(self.chunks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chunked):
            return NotImplemented
        return self.chunks == cast("Chunked[object]", other).chunks

    def __hash__(self) -> int:
        return hash(self.chunks)

    def __repr__(self) -> str:
        return f"Chunked({tuple(self)!r})"

    def changed(self: "Chunked[T]", changes: Mapping[int, T], added: Sequence[T] = ()) -> "Chunked[T]":
        """Others at these indexes, and some behind the last."""
        chunks = list(self.chunks)
        touched: dict[int, list[T]] = {}
        for index, item in changes.items():
            at = index >> BITS
            chunk = touched.get(at)
            if chunk is None:
                chunk = touched[at] = list(chunks[at])
            chunk[index & _MASK] = item
        for at, chunk in touched.items():
            chunks[at] = tuple(chunk)
        room = -self._count & _MASK
        if room and added:
            chunks[-1] += tuple(added[:room])
        chunks += (tuple(added[start : start + CHUNK]) for start in range(room, len(added), CHUNK))
        return Chunked(tuple(chunks), self._count + len(added))

    def differing(self, other: "Chunked[object]") -> Iterator[int]:
        """Indexes at which the two differ, or but one of them has an item. What they share isn't looked at."""
        for at in range(max(len(self.chunks), len(other.chunks))):
            own = self.chunks[at] if at < len(self.chunks) else ()
            others = other.chunks[at] if at < len(other.chunks) else ()
            if own is others:
                continue
            for index in range(max(len(own), len(others))):
                if index >= len(own) or index >= len(others) or own[index] != others[index]:
                    yield (at << BITS) + index


def chunked(items: Iterable[T]) -> Chunked[T]:
    return Chunked[T]().changed({}, tuple(items))
