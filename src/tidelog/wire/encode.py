"""Compiles encoders: one flat function a message and version, object to bytes.

The function appends small byte strings to a list and joins them. Its names: `w` appends, `v` is a value that may be
null, `s` bytes about to be written, `n` their length or a count, `y` how many elements may be written before others
have their turn, and `done` what was written before that. `pieces` keeps records apart instead of joining
them, so that a slice of a log reaches the socket without a copy.
"""

from collections.abc import Callable, Generator
from struct import pack
from typing import Any, TypeAlias, TypeVar

from tidelog.wire.bounds import ELEMENTS_A_STEP, MESSAGE_CHARACTERS_MAX, STRING_BYTES_MAX
from tidelog.wire.declare import Sendable
from tidelog.wire.errors import ErrorCode, KafkaError, shortened
from tidelog.wire.schema import Array, Blob, Field, Fixed, Kind, Structure, Text, schema
from tidelog.wire.source import Source, fixed_pack

T = TypeVar("T")
Encode: TypeAlias = Callable[[T], bytes]
EncodeSteps: TypeAlias = Callable[[T], Generator[None, None, list[bytes]]]
Pieces: TypeAlias = Callable[[T], list[bytes | Sendable]]
PiecesSteps: TypeAlias = Callable[[T], Generator[None, None, list[bytes | Sendable]]]

MESSAGE_FIELD = "error_message"
"""What the names of fields end with that tell people of an error: those are cut, where they would be too long."""


def compile_encoder(cls: type[T], version: int) -> Encode[T]:
    """The encoder of `cls` in `version`, which must be one of its versions."""
    return _Compiler(cls, version, apart=False).compile()


def compile_encode_steps(cls: type[T], version: int) -> EncodeSteps[T]:
    """The same as a generator that yields after every few elements of arrays, and returns what each step wrote."""
    return _Compiler(cls, version, apart=False, steps=True).compile()


def compile_pieces_steps(cls: type[T], version: int) -> PiecesSteps[T]:
    """Both: in steps, with records left as they are."""
    return _Compiler(cls, version, apart=True, steps=True).compile()


def compile_pieces(cls: type[T], version: int) -> Pieces[T]:
    """Like the encoder, with records left as the objects they are."""
    return _Compiler(cls, version, apart=True).compile()


def varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return SMALL_VARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL_VARINTS = [bytes((value,)) for value in range(128)]


def _no_place(where: str, version: int, value: object) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"version {version} has no place for {where}, which is {value!r}")


def _long_string(where: str, size: int) -> ValueError:
    return ValueError(f"{where} has {size} bytes, {STRING_BYTES_MAX} is the most for a string")


def _bad_uuid(where: str, value: object) -> ValueError:
    return ValueError(f"{where} is {value!r}, but a uuid has 16 bytes")


_RUNTIME = {
    "pack": pack,
    "varint": varint,
    "SMALL": SMALL_VARINTS,
    "join": b"".join,
    "no_place": _no_place,
    "long_string": _long_string,
    "bad_uuid": _bad_uuid,
    "shortened": shortened,
}


class _Compiler:
    def __init__(self, cls: type, version: int, *, apart: bool, steps: bool = False) -> None:
        self.cls = cls
        self.steps = steps
        self.version = version
        self.apart = apart
        self.flexible = version in schema(cls).flexible
        self.source = Source()
        self.source.scope.update(_RUNTIME)
        self.writer = "w"

    def compile(self) -> Any:
        source = self.source
        source.line("parts = []")
        source.line("w = parts.append")
        if self.steps:
            with source.block("if False:"):
                source.line("yield")
            source.line(f"y = {ELEMENTS_A_STEP}")
            source.line("done = []")  # what was joined already: a million parts take time to join, and memory
        if self.apart:
            source.line("out = []")
        self.structure(self.cls, "o", self.cls.__name__)
        self.settle()
        if self.steps:
            source.line("done.append(join(parts))")
            source.line("parts = done")
        if self.apart:
            with source.block("if parts:"):
                source.line("out.append(join(parts))")
            source.line("return out")
        else:
            source.line("return done" if self.steps else "return join(parts)")
        return source.compile(f"encode {self.cls.__name__} v{self.version}", "encode(o)")

    def settle(self) -> None:
        """Write the run."""
        if self.source.run:
            codes, values, size = self.source.take_run()
            if values:
                call = self.source.constant("pack", fixed_pack(codes))
                self.source.line(f"{self.writer}({call}({', '.join(values)}))")
            else:
                self.source.line(f"{self.writer}({bytes(size)!r})")

    def structure(self, cls: type, made: str, path: str) -> None:
        tagged: list[Field] = []
        for field in schema(cls).fields:
            where = f"{path}.{field.name}"
            if self.version not in field.versions:
                if not field.ignorable:
                    self.refuse(field, f"{made}.{field.name}", where)
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.value(field.kind, f"{made}.{field.name}", where, self.version in field.nullable)
        if self.flexible:
            if tagged:
                self.tags(tagged, made, path)
            else:
                self.source.run.append(("x", ""))

    def differs(self, field: Field, value: str) -> str:
        """The expression that is true where the value is not the field's default."""
        if field.factory is list or (field.factory is None and field.default in ("", b"", 0, False)):
            return f"{value} is None or {value}" if self.version in field.nullable else value
        if field.default is None:
            return f"{value} is not None"
        if isinstance(field.kind, Structure) and field.factory is field.kind.cls:
            parts = [f"{value} is None"] if self.version in field.nullable else []
            parts += [self.differs(inner, f"{value}.{inner.name}") for inner in schema(field.kind.cls).fields]
            return " or ".join(parts) or "False"
        return f"{value} != {self.source.constant('default', field.make_default())}"

    def refuse(self, field: Field, value: str, where: str) -> None:
        with self.source.block(f"if {self.differs(field, value)}:"):
            self.source.line(f"raise no_place({where!r}, {self.version}, {value})")

    def tags(self, tagged: list[Field], made: str, path: str) -> None:
        """Those that differ from their defaults, in the order of their numbers, behind their count."""
        source = self.source
        self.settle()
        count, mine, outer = source.name("tags"), source.name("tag_parts"), self.writer
        source.line(f"{count} = 0")
        source.line(f"{mine} = []")
        self.writer = f"{mine}.append"
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            assert field.tag is not None
            value, where = f"{made}.{field.name}", f"{path}.{field.name}"
            with source.block(f"if {self.differs(field, value)}:"):
                inner = source.name("value_parts")
                source.line(f"{inner} = []")
                self.writer = f"{inner}.append"
                if isinstance(field.kind, Structure):
                    self.nested(field.kind.cls, value, where, self.version in field.nullable, null=b"\0")
                else:
                    self.value(field.kind, value, where, self.version in field.nullable)
                self.settle()
                self.writer = f"{mine}.append"
                source.line(f"s = join({inner})")
                source.line(f"{mine}.append({varint(field.tag)!r} + varint(len(s)) + s)")
                source.line(f"{count} += 1")
        self.writer = outer
        with source.block(f"if {count}:"):
            source.line(f"{outer}(varint({count}))")
            source.line(f"{outer}(join({mine}))")
        with source.block("else:"):
            source.line(f'{outer}(b"\\0")')

    def value(self, kind: Kind, value: str, path: str, nullable: bool) -> None:
        match kind:
            case Fixed("16s"):
                with self.source.block(f"if len({value}) != 16:"):
                    self.source.line(f"raise bad_uuid({path!r}, {value})")
                self.source.run.append(("16s", value))
            case Fixed(code):
                self.source.run.append((code, value))
            case Text():
                self.text(value, path, nullable)
            case Blob(view):
                self.blob(value, nullable, apart=view and self.apart)
            case Structure(cls):
                self.nested(cls, value, path, nullable)
            case Array(of):
                self.array(of, value, path, nullable)

    def length(self, code: str) -> None:
        """Write `n`, -1 for null, as a length or count."""
        if not self.flexible:
            self.source.run.append((code, "n"))
            self.settle()
            return
        self.settle()
        self.source.line(f"{self.writer}(SMALL[n + 1] if n < 127 else varint(n + 1))")

    def text(self, value: str, path: str, nullable: bool) -> None:
        source = self.source
        if path.endswith(MESSAGE_FIELD):
            source.line(f"v = {value}")
            with source.block(f"if {'v is not None and ' if nullable else ''}len(v) > {MESSAGE_CHARACTERS_MAX}:"):
                source.line("v = shortened(v)")
            value = "v"
        if nullable:
            if value != "v":
                source.line(f"v = {value}")
            with source.block("if v is None:"):
                source.line('s, n = b"", -1')
            with source.block("else:"):
                source.line("s = v.encode()")
                source.line("n = len(s)")
        else:
            source.line(f"s = {value}.encode()")
            source.line("n = len(s)")
        with source.block(f"if n > {STRING_BYTES_MAX}:"):
            source.line(f"raise long_string({path!r}, n)")
        self.length("h")
        source.line(f"{self.writer}(s)")

    def blob(self, value: str, nullable: bool, *, apart: bool) -> None:
        source = self.source
        source.line(f"s = {value}")
        if nullable:
            with source.block("if s is None:"):
                source.line('s, n = b"", -1')
            with source.block("else:"):
                source.line("n = len(s)")
        else:
            source.line("n = len(s)")
        self.length("i")
        if apart:
            assert self.writer == "w", "records in a tagged field can't be kept apart"
            with source.block("if n > 0:"):
                if self.steps:
                    source.line("done.append(join(parts))")
                    source.line("out.append(join(done))")
                    source.line("done.clear()")
                else:
                    source.line("out.append(join(parts))")
                source.line("parts.clear()")
                source.line("out.append(s)")
        else:
            source.line(f"{self.writer}(s)")

    def pause(self) -> None:
        """Join what there is, and let others have their turn."""
        source = self.source
        source.line("y -= 1")
        with source.block("if y <= 0:"):
            source.line(f"y = {ELEMENTS_A_STEP}")
            source.line("done.append(join(parts))")
            source.line("parts.clear()")
            source.line("yield")

    def nested(self, cls: type, value: str, path: str, nullable: bool, null: bytes = b"\xff") -> None:
        """A structure, behind a byte that tells it from `null` where it may be: -1, but 0 in a tagged field."""
        source = self.source
        made = source.name("o")
        source.line(f"{made} = {value}")
        if not nullable:
            self.structure(cls, made, path)
            return
        self.settle()
        with source.block(f"if {made} is None:"):
            source.line(f"{self.writer}({null!r})")
        with source.block("else:"):
            source.line(f'{self.writer}(b"\\x01")')
            self.structure(cls, made, path)
            self.settle()

    def array(self, of: Kind, value: str, path: str, nullable: bool) -> None:
        source = self.source
        items = source.name("items")
        source.line(f"{items} = {value}")
        source.line(f"n = -1 if {items} is None else len({items})" if nullable else f"n = len({items})")
        self.length("i")
        with source.block("if n > 0:"):
            match of:
                case Fixed("16s"):
                    with source.block(f"for v in {items}:"):
                        with source.block("if len(v) != 16:"):
                            source.line(f"raise bad_uuid({path!r}, v)")
                        source.line(f"{self.writer}(v)")
                case Fixed(code):
                    source.line(f'{self.writer}(pack(f">{{n}}{code}", *{items}))')
                case _:
                    element = source.name("o")
                    with source.block(f"for {element} in {items}:"):
                        if isinstance(of, Structure):
                            self.structure(of.cls, element, f"{path}[]")
                        else:
                            self.value(of, element, f"{path}[]", nullable=False)
                        self.settle()
                        if self.steps:
                            self.pause()
