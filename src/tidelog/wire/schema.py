"""Declarations, resolved: what each field of a message is, in each version. The compilers and the tests read this."""

from collections.abc import Callable
from types import GenericAlias, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, Union, cast, get_args, get_origin

from tidelog.wire.declare import MISSING, Declaration, Spec, Wire, declaration
from tidelog.wire.uuids import ZERO_UUID

FOREVER: Final = 32767

FIXED_BYTES: Final = {"b": 1, "h": 2, "i": 4, "q": 8, "H": 2, "I": 4, "d": 8, "?": 1, "16s": 16}


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


def parse_versions(text: str) -> Versions:
    """
    >>> parse_versions("3+"), parse_versions("0-12"), parse_versions("2"), parse_versions("none")
    (Versions(first=3, last=32767), Versions(first=0, last=12), Versions(first=2, last=2), Versions(first=0, last=-1))
    """
    if text == "none":
        return Versions(0, -1)
    if text.endswith("+"):
        return Versions(int(text[:-1]), FOREVER)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class Fixed(NamedTuple):
    """A type of fixed size, by its `struct` format."""

    code: str


class Text(NamedTuple):
    """A string."""


class Blob(NamedTuple):
    """Bytes; where `view`, they are handed on as they lie in the frame (records)."""

    view: bool


class Structure(NamedTuple):
    """A nested struct."""

    cls: type


class Array(NamedTuple):
    """A list of one kind."""

    of: "Fixed | Text | Blob | Structure"


Kind: TypeAlias = Fixed | Text | Blob | Structure | Array


class Field(NamedTuple):
    """One field of a message, for all its versions."""

    name: str
    kind: Kind
    versions: Versions
    nullable: Versions
    tag: int | None
    ignorable: bool
    default: Any
    factory: Callable[[], Any] | None
    required: bool

    def make_default(self) -> Any:
        return self.default if self.factory is None else self.factory()


class Schema(NamedTuple):
    """A declaration, resolved."""

    key: int | None
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]


def schema(cls: type) -> Schema:
    """The resolved declaration of a message or struct; worked out once."""
    declared = declaration(cls)
    if declared.resolved is None:
        declared.resolved = Schema(
            declared.key,
            parse_versions(declared.versions),
            parse_versions(declared.flexible),
            tuple(_field(name, declared) for name in declared.annotations),
        )
    return cast(Schema, declared.resolved)


def least_bytes(kind: Kind, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of this kind takes: bounds an array's count by the bytes that remain."""
    match kind:
        case Fixed(code):
            return FIXED_BYTES[code]
        case Text():
            return 1 if flexible else 2
        case Blob() | Array():
            return 1 if flexible else 4
        case Structure(cls):
            total = 1 if flexible else 0
            for field in schema(cls).fields:
                if version in field.versions and field.tag is None:
                    small = isinstance(field.kind, Structure) and version in field.nullable
                    total += 1 if small else least_bytes(field.kind, version, flexible)
            return total


def _field(name: str, declared: Declaration) -> Field:
    raw = declared.specs.get(name, MISSING)
    spec = raw if isinstance(raw, Spec) else Spec(default=raw)
    annotation, optional = _strip_none(declared.annotations[name])
    kind = _kind(annotation)
    nullable = parse_versions(spec.nullable or "0+") if optional else parse_versions("none")
    required = spec.default is MISSING and spec.factory is None
    default, factory = spec.default, spec.factory
    if required:
        default, factory = _zero(kind)
    return Field(
        name, kind, parse_versions(spec.versions), nullable, spec.tag, spec.ignorable, default, factory, required
    )


def _strip_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is UnionType or get_origin(annotation) is Union:
        rest = [part for part in get_args(annotation) if part is not type(None)]
        assert len(rest) == 1, f"{annotation} is no wire type"
        return rest[0], True
    return annotation, False


def _kind(annotation: Any) -> Kind:
    if get_origin(annotation) is Annotated:
        mark = annotation.__metadata__[0]
        assert isinstance(mark, Wire)
        return Blob(view=True) if mark.code == "records" else Fixed(mark.code)
    if annotation is str:
        return Text()
    if annotation is bool:
        return Fixed("?")
    if annotation is bytes:
        return Blob(view=False)
    if isinstance(annotation, GenericAlias):
        assert annotation.__origin__ is list, f"{annotation} is no wire type"
        element = _kind(annotation.__args__[0])
        assert not isinstance(element, Array), "arrays of arrays do not exist on the wire"
        return Array(element)
    assert "__wire__" in annotation.__dict__, f"{annotation} is neither a wire type nor a struct"
    return Structure(annotation)


def _zero(kind: Kind) -> tuple[Any, Callable[[], Any] | None]:
    match kind:
        case Fixed("d"):
            return 0.0, None
        case Fixed("?"):
            return False, None
        case Fixed("16s"):
            return ZERO_UUID, None
        case Fixed():
            return 0, None
        case Text():
            return "", None
        case Blob():
            return b"", None
        case Structure(cls):
            return MISSING, cls
        case Array():
            return MISSING, list


def compile_init(cls: type) -> Callable[..., None]:
    """`__init__` of a declared class: keyword-only, each field with its default."""
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters: list[str] = []
    lines: list[str] = []
    for field in schema(cls).fields:
        name = field.name
        scope[f"default_{name}"] = MISSING if field.factory is not None else field.default
        parameters.append(name if field.required else f"{name}=default_{name}")
        if field.factory is not None and not field.required:
            scope[f"make_{name}"] = field.factory
            lines.append(f"    self.{name} = make_{name}() if {name} is MISSING else {name}")
        else:
            lines.append(f"    self.{name} = {name}")
    head = ", *, " + ", ".join(parameters) if parameters else ""
    exec(f"def __init__(self{head}):\n" + "\n".join(lines or ["    pass"]), scope)
    init = cast(Callable[..., None], scope["__init__"])
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def dataclass_fields(cls: type) -> dict[str, Any]:
    """The fields of a declared class as the `dataclasses` module knows them."""
    from dataclasses import field, make_dataclass

    annotations = declaration(cls).annotations
    parts: list[tuple[str, Any, Any]] = []
    for each in schema(cls).fields:
        if each.factory is not None:
            parts.append((each.name, annotations[each.name], field(default_factory=each.factory)))
        else:
            parts.append((each.name, annotations[each.name], field(default=each.default)))
    made = cast(Any, make_dataclass(cls.__name__, parts, kw_only=True, init=False, repr=False, eq=False))
    return cast("dict[str, Any]", made.__dataclass_fields__)
