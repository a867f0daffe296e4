"""Python source under construction: what the decode and encode compilers share.

Fixed-size values that stand side by side are gathered into a run and read or written by one `struct` call; whoever
emits a line that depends on the position settles the run first.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from struct import Struct
from typing import Any

from tidelog.wire.schema import FIXED_BYTES


@lru_cache(maxsize=1024)
def fixed_unpack(codes: str) -> Callable[..., tuple[Any, ...]]:
    return Struct(">" + codes).unpack_from


@lru_cache(maxsize=1024)
def fixed_pack(codes: str) -> Callable[..., bytes]:
    return Struct(">" + codes).pack


class Source:
    """Lines of one function, the constants they name, and the run of fixed-size values not yet emitted."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}
        self.run: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self._depth = 1
        self._names = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Lines under `head`, indented."""
        self.line(head)
        self._depth += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.line("pass")
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A name not used before in this function."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """A name that stands for `value` in the function."""
        for name, known in self.scope.items():
            if known is value:
                return name
        name = self.name(stem)
        self.scope[name] = value
        return name

    def take_run(self) -> tuple[str, list[str], int]:
        """The formats, expressions and size in bytes of the gathered run, which is empty afterwards."""
        codes = "".join(code for code, _ in self.run)
        expressions = [expression for code, expression in self.run if code != "x"]
        size = sum(1 if code in "Bx" else FIXED_BYTES[code] for code, _ in self.run)
        self.run = []
        return codes, expressions, size

    def compile(self, title: str, head: str) -> Any:
        """The function `head` names, with the lines as its body. Tracebacks show the lines."""
        assert not self.run, "a run was left behind"
        text = "\n".join([f"def {head}:", *self._lines, ""])
        self.scope["__name__"] = title
        self.scope["__loader__"] = _Shown(text)
        exec(compile(text, title, "exec"), self.scope)
        return self.scope[head.partition("(")[0]]


class _Shown:
    """Gives tracebacks the generated source."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_source(self, _name: str) -> str:
        return self._text
