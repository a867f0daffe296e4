"""What one setting is: its name, type, default, bounds and a sentence about it; and how its text becomes a value.

A group of settings is a class whose attributes are declared with `integer`, `long`, `text` and so on; the attribute's
name with dots is the setting's name (`log_segment_bytes` is `log.segment.bytes`), so each setting stands in the code
once and type checkers know its type. Reasons for refusing a value are worded as Apache Kafka words them, since
clients see them in the answers of AlterConfigs and CreateTopics.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, ClassVar, TypeAlias

Value: TypeAlias = "bool | int | float | str | tuple[str, ...] | None"

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308


class Type(IntEnum):
    """Kafka's types of settings, with the numbers that DescribeConfigs gives them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


_WIDTH = {Type.SHORT: 15, Type.INT: 31, Type.LONG: 63}


class ConfigError(ValueError):
    """A setting that doesn't exist or a value that it can't have; the message names both and what is allowed."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message

    @classmethod
    def bad_value(cls, name: str, value: object, reason: str) -> "ConfigError":
        return cls(name, f"Invalid value {value} for configuration {name}: {reason}")


class Setting:
    """One setting. `dynamic` ones can change while the broker runs; the others only in what it is started with."""

    __slots__ = ("attribute", "check", "default", "doc", "dynamic", "filled", "least", "most", "name", "one_of", "type")

    def __init__(
        self,
        type: Type,
        default: Value,
        doc: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        one_of: tuple[str, ...] = (),
        filled: bool = False,
        check: Callable[[Any], str | None] | None = None,
        dynamic: bool = False,
    ) -> None:
        self.name = ""
        self.attribute = ""
        self.type = type
        self.default = default
        self.doc = doc
        self.least = at_least
        self.most = at_most
        self.one_of = one_of
        self.filled = filled
        self.check = check
        self.dynamic = dynamic

    def __set_name__(self, owner: object, attribute: str) -> None:
        self.attribute = attribute
        self.name = attribute.replace("_", ".")

    def parse(self, given: str) -> Value:
        """The value that `given` stands for; ConfigError where it isn't one of this setting's."""
        if self.type is Type.LIST:
            return self._parse_list(given.strip())
        value = self._convert(given.strip())
        if self.least is not None and value < self.least:
            raise ConfigError.bad_value(self.name, self.text(value), f"Value must be at least {self.least}")
        if self.most is not None and value > self.most:
            raise ConfigError.bad_value(self.name, self.text(value), f"Value must be no more than {self.most}")
        if self.one_of and value not in self.one_of:
            raise ConfigError.bad_value(self.name, value, "String must be one of: " + ", ".join(self.one_of))
        if self.check is not None and (reason := self.check(value)) is not None:
            raise ConfigError.bad_value(self.name, self.text(value), reason)
        return value

    def text(self, value: Value) -> str | None:
        """The value as Kafka writes it."""
        if value is None or isinstance(value, str):
            return value
        if value is True or value is False:
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return _double_text(value) if isinstance(value, float) else str(value)

    @property
    def allowed(self) -> str:
        """The bounds in words, for the documentation; empty where there are none."""
        if self.one_of:
            return ", ".join(self.one_of)
        if self.least is not None and self.most is not None:
            return f"{self.least} to {self.most}"
        if self.least is not None:
            return f"{self.least} or more"
        return ""

    def _convert(self, given: str) -> Any:
        kind = self.type
        if kind is Type.STRING:
            return given
        if kind is Type.BOOLEAN:
            lower = given.lower()
            if lower not in ("true", "false"):
                raise ConfigError.bad_value(self.name, given, "Expected value to be either true or false")
            return lower == "true"
        try:
            if "_" in given or not given.isascii():
                raise ValueError(given)
            if kind is Type.DOUBLE:
                return float(given)
            number = int(given)
            if not -(1 << _WIDTH[kind]) <= number < 1 << _WIDTH[kind]:
                raise ValueError(given)
        except ValueError:
            raise ConfigError.bad_value(self.name, given, f"Not a number of type {kind.name}") from None
        return number

    def _parse_list(self, given: str) -> tuple[str, ...]:
        parts = tuple(part.strip() for part in given.split(",")) if given else ()
        if self.check is None:
            parts = tuple(dict.fromkeys(parts))  # as Kafka: what stands there twice counts once
            self._check_list(parts)
        elif (reason := self.check(parts)) is not None:
            raise ConfigError.bad_value(self.name, f"[{', '.join(parts)}]", reason)
        return parts

    def _check_list(self, parts: tuple[str, ...]) -> None:
        if self.filled and not parts:
            allowed = f"[{', '.join(self.one_of)}]" if self.one_of else "any non-empty value"
            raise ConfigError(
                self.name, f"Configuration '{self.name}' must not be empty. Valid values include: {allowed}"
            )
        for part in parts:
            if not part:
                raise ConfigError(self.name, f"Configuration '{self.name}' values must not be empty.")
            if self.one_of and part not in self.one_of:
                raise ConfigError.bad_value(self.name, part, "String must be one of: " + ", ".join(self.one_of))


class Settings:
    """A group of settings, as a class; its instances hold the values, which don't change."""

    SETTINGS: ClassVar[Mapping[str, Setting]] = {}

    def __init_subclass__(cls) -> None:
        """Take the declarations out of the class, so that instances have plain attributes in their place."""
        settings: dict[str, Setting] = {}
        for parent in reversed(cls.__mro__[1:]):
            settings.update(parent.__dict__.get("SETTINGS", {}))
        own = [value for value in cls.__dict__.values() if isinstance(value, Setting)]
        for declared in own:
            settings[declared.name] = declared
            delattr(cls, declared.attribute)
        cls.SETTINGS = settings  # pyright: ignore[reportConstantRedefinition]

    def __init__(self, values: Mapping[str, Value]) -> None:
        """`values` holds one of each, by attribute name."""
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AttributeError(f"settings don't change: {attribute} can't be set to {value!r}; resolve new ones instead")

    def value(self, name: str) -> Value:
        """The value of the setting of that name."""
        return getattr(self, self.SETTINGS[name].attribute)


def integer(
    default: int,
    doc: str,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    check: Callable[[int], str | None] | None = None,
    dynamic: bool = False,
) -> int:
    declared: Any = Setting(Type.INT, default, doc, at_least=at_least, at_most=at_most, check=check, dynamic=dynamic)
    return declared


def optional_integer(
    default: int | None, doc: str, *, at_least: int | None = None, dynamic: bool = False
) -> int | None:
    declared: Any = Setting(Type.INT, default, doc, at_least=at_least, dynamic=dynamic)
    return declared


def short(default: int, doc: str, *, at_least: int | None = None) -> int:
    declared: Any = Setting(Type.SHORT, default, doc, at_least=at_least)
    return declared


def long(default: int, doc: str, *, at_least: int | None = None, dynamic: bool = False) -> int:
    declared: Any = Setting(Type.LONG, default, doc, at_least=at_least, dynamic=dynamic)
    return declared


def optional_long(default: int | None, doc: str, *, dynamic: bool = False) -> int | None:
    declared: Any = Setting(Type.LONG, default, doc, dynamic=dynamic)
    return declared


def _double_text(value: float) -> str:
    """As Java writes it: 0.5, but 1.0E-4 and 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # here: hardly any setting needs it

    sign, digits, _ = (exact := Decimal(repr(value)).normalize()).as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exact.adjusted()}"


def double(default: float, doc: str, *, at_least: int, at_most: float, dynamic: bool = False) -> float:
    declared: Any = Setting(Type.DOUBLE, default, doc, at_least=at_least, at_most=at_most, dynamic=dynamic)
    return declared


def boolean(default: bool, doc: str, *, dynamic: bool = False) -> bool:
    declared: Any = Setting(Type.BOOLEAN, default, doc, dynamic=dynamic)
    return declared


def text(default: str, doc: str, *, one_of: tuple[str, ...] = (), dynamic: bool = False) -> str:
    declared: Any = Setting(Type.STRING, default, doc, one_of=one_of, dynamic=dynamic)
    return declared


def optional_text(doc: str) -> str | None:
    declared: Any = Setting(Type.STRING, None, doc)
    return declared


def names(
    default: tuple[str, ...],
    doc: str,
    *,
    one_of: tuple[str, ...] = (),
    filled: bool = False,
    check: Callable[[tuple[str, ...]], str | None] | None = None,
    dynamic: bool = False,
) -> tuple[str, ...]:
    declared: Any = Setting(Type.LIST, default, doc, one_of=one_of, filled=filled, check=check, dynamic=dynamic)
    return declared


def optional_names(doc: str) -> tuple[str, ...] | None:
    declared: Any = Setting(Type.LIST, None, doc, filled=True)
    return declared
