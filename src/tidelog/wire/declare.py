"""How messages are declared: typed, slotted, keyword-only classes whose annotations say what stands on the wire.

    @struct
    class TopicData:
        name: str = wire("0-12", default="", ignorable=True)
        topic_id: uuid = wire("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[PartitionData] = wire(factory=list)

Type checkers see ordinary dataclasses. Decorating is cheap on purpose (a broker imports a hundred of these when it
starts): nothing is compiled before the first use, not even `__init__`.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar, cast, dataclass_transform

T = TypeVar("T")

MISSING: Any = object()


class Sendable(Protocol):
    """Records that know their size and can send themselves, such as a slice of a log: `pieces` passes them on."""

    def __len__(self) -> int: ...


class Wire:
    """The wire type behind an annotation: a `struct` format character, or "records"."""

    __slots__ = ("code",)

    def __init__(self, code: str) -> None:
        self.code = code


i8: TypeAlias = Annotated[int, Wire("b")]
i16: TypeAlias = Annotated[int, Wire("h")]
i32: TypeAlias = Annotated[int, Wire("i")]
i64: TypeAlias = Annotated[int, Wire("q")]
u16: TypeAlias = Annotated[int, Wire("H")]
u32: TypeAlias = Annotated[int, Wire("I")]
f64: TypeAlias = Annotated[float, Wire("d")]
uuid: TypeAlias = Annotated[bytes, Wire("16s")]
Records: TypeAlias = Annotated[memoryview, Wire("records")]
"""Record batches that came in: a view into the frame, never a copy."""
SentRecords: TypeAlias = Annotated[bytes | bytearray | memoryview | Sendable, Wire("records")]
"""Record batches that go out."""


class Spec:
    """What `wire(...)` says of a field."""

    __slots__ = ("default", "factory", "ignorable", "nullable", "tag", "versions")

    def __init__(
        self,
        versions: str = "0+",
        default: Any = MISSING,
        factory: Callable[[], Any] | None = None,
        tag: int | None = None,
        nullable: str | None = None,
        ignorable: bool = False,
    ) -> None:
        self.versions = versions
        self.default = default
        self.factory = factory
        self.tag = tag
        self.nullable = nullable
        self.ignorable = ignorable


def wire(
    versions: str = "0+",
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    tag: int | None = None,
    nullable: str | None = None,
    ignorable: bool = False,
) -> Any:
    """Say more of a field than its type.

    Parameters
    ----------
    versions: the versions that have the field; in others it has its default.
    default, factory: its value where none is given; `factory` makes a fresh one each time.
    tag: it is a tagged field, under this number.
    nullable: the versions in which null is allowed; all where the annotation says `| None` and this is not given.
    ignorable: a version without the field may drop its value; else encoding a value there is an error.
    """
    return Spec(versions, default, factory, tag, nullable, ignorable)


class Declaration:
    """What a decorated class carries: everything the compilers need, unresolved until they ask."""

    __slots__ = ("annotations", "flexible", "key", "resolved", "specs", "versions")

    def __init__(
        self, key: int | None, versions: str, flexible: str, annotations: Mapping[str, Any], specs: Mapping[str, Any]
    ) -> None:
        self.key = key
        self.versions = versions
        self.flexible = flexible
        self.annotations = annotations
        self.specs = specs
        self.resolved: Any = None


def declaration(cls: type) -> Declaration:
    """The declaration of a class that `struct` or `message` decorated."""
    return cast(Declaration, cls.__dict__["__wire__"])


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def struct(cls: type[T]) -> type[T]:
    """Declare a part of messages."""
    return _slotted(cls, None, "0+", "none")


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def message(*, key: int, versions: str, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Declare a message: its API key (or record type), the versions there are, and those that are flexible."""

    def decorate(cls: type[T]) -> type[T]:
        return _slotted(cls, key, versions, flexible)

    return decorate


def _slotted(cls: type[T], key: int | None, versions: str, flexible: str) -> type[T]:
    """The class again, with slots for its fields: a class can't be given slots once it is there."""
    annotations: dict[str, Any] = cls.__annotations__
    body: dict[str, Any] = {}
    specs: dict[str, Any] = {}
    for name, value in cls.__dict__.items():
        if name in annotations:
            specs[name] = value
        elif name not in ("__dict__", "__weakref__"):
            body[name] = value
    body["__slots__"] = tuple(annotations)
    body["__match_args__"] = ()
    body["__init__"] = _init_first
    body["__eq__"] = _equal
    body["__hash__"] = None
    body["__repr__"] = _text
    body["__dataclass_fields__"] = _DataclassFields()
    body["__wire__"] = Declaration(key, versions, flexible, annotations, specs)
    return cast("type[T]", type(cls.__name__, cls.__bases__, body))


class _DataclassFields:
    """What makes `dataclasses.fields`, `replace` and `asdict` work on declared classes; worked out when first asked."""

    def __get__(self, _instance: object, cls: type) -> Any:
        from tidelog.wire.schema import dataclass_fields

        fields = dataclass_fields(cls)
        cast(Any, cls).__dataclass_fields__ = fields
        return fields


def _init_first(self: Any, **values: Any) -> None:
    """The first object of its class: compile the real `__init__`, which takes over."""
    from tidelog.wire.schema import compile_init

    cls = cast(Any, type(self))
    cls.__init__ = compile_init(cls)
    self.__init__(**values)


def _equal(self: Any, other: object) -> bool:
    if self.__class__ is not other.__class__:
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _text(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"
