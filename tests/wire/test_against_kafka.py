"""Apache Kafka has the last word: its schemas, and its own classes reading what we write."""

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tools.declare import Json, Versions, declare_module, find_schemas, read_schemas, valid_versions

from tests.kafka.jars import KAFKA_VERSION, kafka_jars
from tests.wire.values import declared_messages, each_version, values
from tidelog.wire.codec import encoder
from tidelog.wire.keys import RANGES
from tidelog.wire.schema import Array, Blob, Field, Fixed, Kind, Structure, Text, schema
from tidelog.wire.uuids import uuid_text

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka")]

KAFKA_TYPES = {
    "b": "int8",
    "h": "int16",
    "i": "int32",
    "q": "int64",
    "H": "uint16",
    "I": "uint32",
    "d": "float64",
    "?": "bool",
    "16s": "uuid",
}
JAVA_TIMEOUT_S = 90


@pytest.fixture(scope="module")
def jars() -> Path:
    return kafka_jars()


@pytest.fixture(scope="module")
def schemas(jars: Path) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for part in ("clients", "metadata", "group-coordinator", "transaction-coordinator"):
        found |= read_schemas(jars / f"kafka-{part}-{KAFKA_VERSION}.jar")
    return found


def test_apis_have_kafkas_keys_and_versions(schemas: dict[str, Json]) -> None:
    theirs = {
        each["apiKey"]: (*valid_versions(each), each["flexibleVersions"])
        for each in schemas.values()
        if each["type"] == "request" and each["validVersions"] != "none"
    }
    ours = {
        key: (first, last, "none" if flexible == 32767 else f"{flexible}+")
        for key, (first, last, flexible) in RANGES.items()
    }
    assert ours == theirs


@pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)
def test_a_declaration_says_what_kafkas_schema_says(cls: type, schemas: dict[str, Json]) -> None:
    theirs, ours = schemas[cls.__name__], schema(cls)
    valid = valid_versions(schemas[re.sub("Response$", "Request", cls.__name__)])
    if theirs["type"] != "data":
        assert ours.key == theirs["apiKey"]
    assert tuple(ours.versions) == valid
    common = {struct["name"]: struct["fields"] for struct in theirs.get("commonStructs", [])}
    for version in range(valid.first, valid.last + 1):
        assert (version in ours.flexible) == _has(theirs["flexibleVersions"], version)
        assert _our_fields(cls, version) == _their_fields(theirs.get("fields", []), common, version, valid)


def test_the_tool_prints_what_is_declared(schemas: dict[str, Json]) -> None:
    for cls in declared_messages():
        name = re.sub("(Request|Response)$", "", cls.__name__)
        printed: dict[str, Any] = {}
        exec(declare_module(find_schemas(schemas, name)), printed)
        for version in range(schema(cls).versions.first, schema(cls).versions.last + 1):
            assert _our_fields(printed[cls.__name__], version) == _our_fields(cls, version)


def _has(versions: str, version: int) -> bool:
    first, last = Versions.parse(versions)
    return first <= version <= last


def _our_fields(cls: type, version: int) -> list[Any]:
    """What each field is in this version; of those that are not in it, whether they may be dropped."""
    described: list[Any] = []
    for field in schema(cls).fields:
        name = field.name.replace("_", "")
        if version in field.versions:
            kind = field.kind.of if isinstance(field.kind, Array) else field.kind
            inner = _our_fields(kind.cls, version) if isinstance(kind, Structure) else None
            described.append(
                (name, _type_name(field.kind), version in field.nullable, field.tag, _our_default(field), inner)
            )
        else:
            described.append((name, "absent", field.ignorable))
    return described


def _type_name(kind: Kind) -> str:
    match kind:
        case Fixed(code):
            return KAFKA_TYPES[code]
        case Text():
            return "string"
        case Blob(view):
            return "records" if view else "bytes"
        case Structure():
            return "struct"
        case Array(of):
            return f"[]{_type_name(of)}"


def _our_default(field: Field) -> Any:
    return "made" if field.factory is not None else field.default


def _their_fields(fields: list[Json], common: dict[str, list[Json]], version: int, valid: Versions) -> list[Any]:
    described: list[Any] = []
    for field in fields:
        if (Versions.parse(field["versions"]) & valid).empty:
            continue
        name = field["name"].lower()
        if not _has(field["versions"], version):
            described.append((name, "absent", bool(field.get("ignorable"))))
            continue
        array = "[]" if field["type"].startswith("[]") else ""
        kind = field["type"].removeprefix("[]")
        inner = None
        if kind not in KAFKA_TYPES.values() and kind not in ("string", "bytes", "records"):
            inner = _their_fields(field.get("fields") or common[kind], common, version, valid)
            kind = "struct"
        nullable = _has(field.get("nullableVersions", "none"), version)
        default = _their_default(field, array + kind, nullable)
        described.append((name, array + kind, nullable, field.get("tag"), default, inner))
    return described


def _their_default(field: Json, kind: str, nullable: bool) -> Any:
    given = field.get("default")
    if given == "null" or (kind == "records" and nullable):
        return None
    if kind.startswith("[]") or kind == "struct":
        return "made"
    if kind == "string":
        return given or ""
    if kind in ("bytes", "records"):
        return b""
    if kind == "uuid":
        return bytes(16)
    if kind == "bool":
        return str(given).lower() == "true"
    return float(given or 0) if kind == "float64" else int(str(given or 0), 0)


def test_kafkas_classes_read_what_we_write_and_write_the_same(jars: Path, schemas: dict[str, Json]) -> None:
    asked: list[tuple[type, int, Any, bytes]] = []
    for cls, version in each_version():
        encode = encoder(cls, version)
        asked += [(cls, version, value, encode(value)) for value in _some_values(cls, version)]
    lines = [f"{_java_class(cls, schemas)} {version} {encoded.hex()}" for cls, version, _, encoded in asked]
    program = Path(__file__).with_name("RoundTrip.java")
    java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(program)]
    ran = subprocess.run(
        java, input="\n".join(lines) + "\n", capture_output=True, encoding="utf-8", timeout=JAVA_TIMEOUT_S, check=True
    )
    answers = ran.stdout.split("\n")[:-1]
    assert len(answers) == len(asked), ran.stderr
    for (cls, version, value, encoded), answer in zip(asked, answers, strict=True):
        where = f"{cls.__name__} v{version}"
        assert not answer.startswith("failed"), f"{where}: {answer}"
        written, _, understood = answer.partition("\t")
        assert written == encoded.hex(), where
        _assert_understood(value, json.loads(understood), version, where)


def _some_values(cls: type, version: int) -> list[Any]:
    found: list[Any] = [cls()]

    @settings(max_examples=4, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(values(cls, version))
    def gather(value: Any) -> None:
        found.append(value)

    gather()
    return found


def _java_class(cls: type, schemas: dict[str, Json]) -> str:
    match schemas[cls.__name__]["type"]:
        case "metadata":
            return f"org.apache.kafka.common.metadata.{cls.__name__}"
        case "data":
            return f"org.apache.kafka.common.message.{cls.__name__}"
        case "coordinator-key" | "coordinator-value":
            part = "transaction" if cls.__name__.startswith("Transaction") else "group"
            return f"org.apache.kafka.coordinator.{part}.generated.{cls.__name__}"
        case _:
            return f"org.apache.kafka.common.message.{cls.__name__}Data"


def _assert_understood(ours: Any, theirs: Any, version: int, where: str) -> None:
    """Each field that the version has, under Kafka's name for it; a tagged one is left out where it has its default."""
    named = {key.replace("_", "").lower(): value for key, value in theirs.items()}
    for field in schema(type(ours)).fields:
        if version not in field.versions:
            continue
        value, key = getattr(ours, field.name), field.name.replace("_", "")
        if isinstance(field.kind, Blob) and field.kind.view and value is not None:
            assert key in named, where  # the JSON leaves records empty; the bytes written back hold them
        elif key not in named:
            assert field.tag is not None, where
            assert value == field.make_default(), where
        else:
            _assert_value(field.kind, value, named[key], version, f"{where} {field.name}")


def _assert_value(kind: Kind, ours: Any, theirs: Any, version: int, where: str) -> None:
    if ours is None:
        assert theirs is None, where
        return
    match kind:
        case Fixed("16s"):
            assert theirs == uuid_text(ours), where
        case Fixed("d"):
            assert float(theirs) == ours, where
        case Blob():
            assert base64.b64decode(theirs) == bytes(ours), where
        case Structure():
            _assert_understood(ours, theirs, version, where)
        case Array(of):
            for our_item, their_item in zip(ours, theirs, strict=True):
                _assert_value(of, our_item, their_item, version, where)
        case _:
            assert theirs == ours, where
