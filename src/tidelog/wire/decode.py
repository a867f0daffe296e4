"""Compiles decoders: one flat function a message and version, bytes to object.

What the function may trust is the buffer's length and nothing else. Fixed-size reads beyond the end raise
`struct.error` or IndexError, caught once for the whole message; lengths and counts are compared with the bytes that
remain before anything is made of them. The arrays of a request together have a bound besides, since an element of one
byte becomes an object of a hundred; so have the tagged fields of all its elements, since to pass over one takes as long
as to read an element. The function is called with the buffer and a position, and keeps these names:
`b` the buffer, `p` the position, `end` the buffer's length, `n` a length or count just read, `e` where a value ends,
`left` how many elements the request may still have, `tags` how many tagged fields, `y` how many of either may be read
before others have their turn.
"""

from collections.abc import Callable, Generator
from struct import error as StructError
from struct import unpack_from
from typing import Any, TypeAlias, TypeVar

from tidelog.wire.bounds import (
    ELEMENTS_A_STEP,
    REQUEST_ELEMENTS_MAX,
    REQUEST_TAGGED_FIELDS_MAX,
    STRING_BYTES_MAX,
    TAGGED_FIELDS_MAX,
)
from tidelog.wire.errors import MalformedError
from tidelog.wire.schema import FIXED_BYTES, Array, Blob, Field, Fixed, Kind, Structure, Text, least_bytes, schema
from tidelog.wire.source import Source, fixed_unpack

T = TypeVar("T")
Decode: TypeAlias = Callable[[bytes | memoryview, int], tuple[T, int]]
DecodeSteps: TypeAlias = Callable[[bytes | memoryview, int], Generator[None, None, tuple[T, int]]]


def compile_decoder(cls: type[T], version: int) -> Decode[T]:
    """The decoder of `cls` in `version`, which must be one of its versions."""
    return _Compiler(cls, version, steps=False).compile()


def compile_decode_steps(cls: type[T], version: int) -> DecodeSteps[T]:
    """The same as a generator that yields after every few elements of arrays."""
    return _Compiler(cls, version, steps=True).compile()


def read_rest(b: bytes | memoryview, p: int, first: int) -> tuple[int, int]:
    """The unsigned varint whose first byte, with its continuation bit set, was read already; and where it ends."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = b[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, p
    raise MalformedError("a varint goes on after five bytes")


def read_varint(b: bytes | memoryview, p: int) -> tuple[int, int]:
    """The unsigned varint at `p`, and where it ends. IndexError beyond the buffer."""
    first = b[p]
    return (first, p + 1) if first < 0x80 else read_rest(b, p + 1, first)


def skip_tags(b: bytes | memoryview, p: int, first: int, end: int) -> int:
    """Pass over tagged fields that nobody here knows; `first` is the first byte of their count, which was read."""
    count = first
    if first > 127:
        count, p = read_rest(b, p, first)
        if count > TAGGED_FIELDS_MAX:
            raise _many_tags(count)
    return _skip_tags(b, p, count, end)


def _skip_tags(b: bytes | memoryview, p: int, count: int, end: int) -> int:
    for _ in range(count):
        tag, p = read_varint(b, p)
        size, p = read_varint(b, p)
        if size > end - p:
            raise MalformedError(f"tagged field {tag} claims {size} bytes, {end - p} remain")
        p += size
    return p


def _no_null(where: str) -> MalformedError:
    return MalformedError(f"{where} is null, which it may not be")


def _too_long(where: str, size: int, left: int) -> MalformedError:
    return MalformedError(f"{where} claims {size} bytes, {left} remain")


def _too_many(where: str, count: int, left: int) -> MalformedError:
    return MalformedError(f"{where} claims {count} elements, which {left} bytes can't hold")


def _over_budget(where: str) -> MalformedError:
    return MalformedError(f"{where} brings the request above {REQUEST_ELEMENTS_MAX} elements: ask in several requests")


def _many_tags(count: int) -> MalformedError:
    return MalformedError(f"{count} tagged fields in one place, {TAGGED_FIELDS_MAX} is the most")


def _tags_over_budget(where: str) -> MalformedError:
    return MalformedError(f"{where} brings the request above {REQUEST_TAGGED_FIELDS_MAX} tagged fields")


def _long_string(where: str, size: int) -> MalformedError:
    return MalformedError(f"{where} claims {size} bytes, {STRING_BYTES_MAX} is the most for a string")


def _bad_tag(where: str) -> MalformedError:
    return MalformedError(f"{where} does not fill the size of its tagged field")


def _cut_off(where: str, end: int) -> MalformedError:
    return MalformedError(f"{where} is cut off: it goes on after the buffer's {end} bytes")


def _bad_text(where: str, error: UnicodeDecodeError) -> MalformedError:
    return MalformedError(f"{where} has a string that is not UTF-8: {error.reason}")


_RUNTIME = {
    "StructError": StructError,
    "unpack_from": unpack_from,
    "read_rest": read_rest,
    "read_varint": read_varint,
    "skip_tags": _skip_tags,
    "no_null": _no_null,
    "too_long": _too_long,
    "too_many": _too_many,
    "over_budget": _over_budget,
    "many_tags": _many_tags,
    "tags_over_budget": _tags_over_budget,
    "long_string": _long_string,
    "bad_tag": _bad_tag,
    "cut_off": _cut_off,
    "bad_text": _bad_text,
}


class _Compiler:
    def __init__(self, cls: type, version: int, *, steps: bool) -> None:
        self.cls = cls
        self.steps = steps
        self.version = version
        self.flexible = version in schema(cls).flexible
        self.bounded = cls.__name__.endswith("Request")
        self.title = f"{cls.__name__} v{version}"
        self.source = Source()
        self.source.scope.update(_RUNTIME)

    def compile(self) -> Any:
        source = self.source
        with source.block("try:"):
            source.line("end = len(b)")
            if self.steps:
                with source.block("if False:"):
                    source.line("yield")
                source.line(f"y = {ELEMENTS_A_STEP}")
            if self.bounded:
                source.line(f"left = {REQUEST_ELEMENTS_MAX}")
                source.line(f"tags = {REQUEST_TAGGED_FIELDS_MAX}")
            if _has_view(self.cls, self.version):
                source.line("m = b if type(b) is memoryview else memoryview(b)")
            made = self.structure(self.cls, self.cls.__name__)
            self.settle()
            source.line(f"return {made}, p")
        with source.block("except (IndexError, StructError):"):
            source.line(f"raise cut_off({self.title!r}, len(b)) from None")
        with source.block("except UnicodeDecodeError as error:"):
            source.line(f"raise bad_text({self.title!r}, error) from None")
        return source.compile(f"decode {self.title}", "decode(b, p)")

    def settle(self) -> None:
        """Read the run."""
        if self.source.run:
            codes, targets, size = self.source.take_run()
            if codes == "B":
                self.source.line(f"{targets[0]} = b[p]")
                self.source.line("p += 1")
                return
            unpack = self.source.constant("unpack", fixed_unpack(codes))
            self.source.line(f"{', '.join(targets)}, = {unpack}(b, p)")
            self.source.line(f"p += {size}")

    def structure(self, cls: type, path: str) -> str:
        """Read a struct; the name of the variable that holds it."""
        source = self.source
        made = source.name("o")
        constant = source.constant("class", cls)
        source.line(f"{made} = {source.constant('new', cls.__new__)}({constant})")
        tagged: list[Field] = []
        for field in schema(cls).fields:
            target = f"{made}.{field.name}"
            if self.version not in field.versions or field.tag is not None:
                self.set_default(field, target)
            if self.version in field.versions:
                if field.tag is None:
                    self.value(field.kind, target, f"{path}.{field.name}", self.version in field.nullable)
                else:
                    tagged.append(field)
        if self.flexible:
            self.tags(tagged, made, path)
        return made

    def set_default(self, field: Field, target: str) -> None:
        if field.factory is not None:
            made = "[]" if field.factory is list else f"{self.source.constant('make', field.factory)}()"
            self.source.line(f"{target} = {made}")
        elif field.default is None or isinstance(field.default, int | str | bytes):
            self.source.line(f"{target} = {field.default!r}")
        else:
            self.source.line(f"{target} = {self.source.constant('default', field.default)}")

    def tags(self, known: list[Field], made: str, path: str) -> None:
        source = self.source
        source.run.append(("B", "n"))
        self.settle()
        with source.block("if n:"):
            with source.block("if n > 127:"):
                source.line("n, p = read_rest(b, p, n)")
                with source.block(f"if n > {TAGGED_FIELDS_MAX}:"):
                    source.line("raise many_tags(n)")
            if self.bounded:
                source.line("tags -= n")
                with source.block("if tags < 0:"):
                    source.line(f"raise tags_over_budget({path!r})")
            if self.steps:
                source.line("y -= n")
            if not known:
                source.line("p = skip_tags(b, p, n, end)")
                return
            tag, stop = source.name("tag"), source.name("stop")
            with source.block("for _ in range(n):"):
                source.line(f"{tag}, p = read_varint(b, p)")
                source.line("n, p = read_varint(b, p)")
                source.line(f"{stop} = p + n")
                with source.block(f"if {stop} > end:"):
                    source.line(f"raise too_long({f'a tagged field of {path}'!r}, n, end - p)")
                for index, field in enumerate(known):
                    where = f"{path}.{field.name}"
                    with source.block(f"{'el' if index else ''}if {tag} == {field.tag}:"):
                        target, nullable = f"{made}.{field.name}", self.version in field.nullable
                        if isinstance(field.kind, Structure):
                            self.nested(field.kind.cls, target, where, nullable, null="n <= 0")
                        else:
                            self.value(field.kind, target, where, nullable)
                        self.settle()
                        with source.block(f"if p != {stop}:"):
                            source.line(f"raise bad_tag({where!r})")
                with source.block("else:"):
                    source.line(f"p = {stop}")

    def value(self, kind: Kind, target: str, path: str, nullable: bool) -> None:
        match kind:
            case Fixed(code):
                self.source.run.append((code, target))
            case Text():
                self.sized(target, path, nullable, "h", 'str(b[p:e], "utf-8")')
            case Blob(view):
                self.sized(target, path, nullable, "i", "m[p:e]" if view else "bytes(b[p:e])")
            case Structure(cls):
                self.nested(cls, target, path, nullable)
            case Array(of):
                self.array(of, target, path, nullable)

    def length(self, code: str, path: str, *, string: bool) -> str:
        """Read a length or count into `n`; the expression that is true where it is null."""
        source = self.source
        source.run.append(("B" if self.flexible else code, "n"))
        self.settle()
        if not self.flexible:
            return "n < 0"
        with source.block("if n > 127:"):
            source.line("n, p = read_rest(b, p, n)")
            if string:
                with source.block(f"if n > {STRING_BYTES_MAX + 1}:"):
                    source.line(f"raise long_string({path!r}, n - 1)")
        return "n == 0"

    def null_or(self, null: str, target: str, path: str, nullable: bool) -> str:
        """The branch for null; the head of the block for a value."""
        with self.source.block(f"if {null}:"):
            self.source.line(f"{target} = None" if nullable else f"raise no_null({path!r})")
        return "else:"

    def sized(self, target: str, path: str, nullable: bool, code: str, expression: str) -> None:
        """A string or bytes: a length, then so many bytes."""
        source = self.source
        null = self.length(code, path, string=code == "h")
        with source.block(self.null_or(null, target, path, nullable)):
            source.line("e = p + n - 1" if self.flexible else "e = p + n")
            with source.block("if e > end:"):
                source.line(f"raise too_long({path!r}, e - p, end - p)")
            source.line(f"{target} = {expression}")
            source.line("p = e")

    def nested(self, cls: type, target: str, path: str, nullable: bool, null: str = "n < 0") -> None:
        source = self.source
        if not nullable:
            source.line(f"{target} = {self.structure(cls, path)}")
            return
        source.run.append(("b", "n"))
        self.settle()
        with source.block(self.null_or(null, target, path, nullable)):
            made = self.structure(cls, path)
            self.settle()
            source.line(f"{target} = {made}")

    def array(self, of: Kind, target: str, path: str, nullable: bool) -> None:
        source = self.source
        null = self.length("i", path, string=False)
        with source.block(self.null_or(null, target, path, nullable)):
            if self.flexible:
                source.line("n -= 1")
            least = max(1, least_bytes(of, self.version, self.flexible))
            with source.block(f"if n * {least} > end - p:" if least > 1 else "if n > end - p:"):
                source.line(f"raise too_many({path!r}, n, end - p)")
            if self.bounded:
                source.line("left -= n")
                with source.block("if left < 0:"):
                    source.line(f"raise over_budget({path!r})")
            match of:
                case Fixed("16s"):
                    source.line("e = p + 16 * n")
                    source.line(f"{target} = [bytes(b[i : i + 16]) for i in range(p, e, 16)]")
                    source.line("p = e")
                case Fixed(code):
                    source.line(f'{target} = list(unpack_from(f">{{n}}{code}", b, p))')
                    source.line(f"p += n * {FIXED_BYTES[code]}" if FIXED_BYTES[code] > 1 else "p += n")
                case _:
                    self.elements(of, target, path)

    def elements(self, of: Kind, target: str, path: str) -> None:
        source = self.source
        items = source.name("items")
        source.line(f"{items} = []")
        with source.block("for _ in range(n):"):
            if isinstance(of, Structure):
                made = self.structure(of.cls, f"{path}[]")
            else:
                made = "v"
                self.value(of, made, f"{path}[]", nullable=False)
            self.settle()
            source.line(f"{items}.append({made})")
            if self.steps:
                source.line("y -= 1")
                with source.block("if y <= 0:"):
                    source.line(f"y = {ELEMENTS_A_STEP}")
                    source.line("yield")
        source.line(f"{target} = {items}")


def _has_view(cls: type, version: int) -> bool:
    for field in schema(cls).fields:
        kind = field.kind.of if isinstance(field.kind, Array) else field.kind
        if version in field.versions and (
            kind == Blob(view=True) or (isinstance(kind, Structure) and _has_view(kind.cls, version))
        ):
            return True
    return False
