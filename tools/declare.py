"""Prints declarations of Kafka's messages, for `src/tidelog/wire`, from the JSON schemas that Apache Kafka ships.

    python tools/declare.py kafka-clients-4.3.1.jar Produce > src/tidelog/wire/messages/produce.py
    python tools/declare.py kafka-metadata-4.3.1.jar TopicRecord PartitionRecord

The source is a jar or a folder of schemas. A name is an API (its request and response) or one schema. What comes out
are facts only: names, types, versions, tags, defaults; the docstrings are left to whoever tidies the module. Versions
that Kafka marks unstable are left out, but for those in `WANTED_THOUGH_UNSTABLE`. The tests compare what is declared
with the schemas again.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SCALARS = {
    "bool": "bool",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint16": "u16",
    "uint32": "u32",
    "float64": "f64",
    "string": "str",
    "bytes": "bytes",
    "uuid": "uuid",
}
FOREVER = 32767

Json = dict[str, Any]


class Versions(NamedTuple):
    """A range of versions, both ends included; empty where the last comes before the first."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), FOREVER)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __and__(self, other: "Versions") -> "Versions":
        return Versions(max(self.first, other.first), min(self.last, other.last))

    def covers(self, other: "Versions") -> bool:
        return self & other == other

    @property
    def empty(self) -> bool:
        return self.last < self.first

    def text(self, valid: "Versions") -> str:
        if self.empty:
            return "none"
        if self.last >= valid.last:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def read_schemas(source: Path) -> dict[str, Json]:
    """All schemas of a folder or jar, by name."""
    if source.is_dir():
        texts = [path.read_text() for path in sorted(source.glob("*.json"))]
    else:
        with zipfile.ZipFile(source) as jar:
            names = [name for name in jar.namelist() if re.fullmatch(r"common/\w+/\w+\.json", name)]
            texts = [jar.read(name).decode() for name in names]
    schemas = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE), object_hook=_plain) for text in texts]
    return {schema["name"]: schema for schema in schemas}


def _plain(value: Json) -> Json:
    """A field as most schemas write it: some leave out the versions that the tag implies.

    A default that is JSON's null, not the text "null", is left alone: Kafka's generator takes it for none given.
    """
    if "taggedVersions" in value:
        value.setdefault("versions", value["taggedVersions"])
    return value


WANTED_THOUGH_UNSTABLE = frozenset(("InitProducerIdRequest", "InitProducerIdResponse"))
"""Two-phase commit (KIP-939)."""


def valid_versions(schema: Json) -> Versions:
    """The versions to declare: all but an unstable last one that nobody wants."""
    valid = Versions.parse(schema["validVersions"])
    unstable = schema.get("latestVersionUnstable") and schema["name"] not in WANTED_THOUGH_UNSTABLE
    return Versions(valid.first, valid.last - 1) if unstable else valid


def snake(name: str) -> str:
    """
    >>> snake("LogStartOffset"), snake("KRaftVersion")
    ('log_start_offset', 'kraft_version')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("KRaft", "Kraft")).lower()


class Struct(NamedTuple):
    """A struct of one message, its fields trimmed to the versions that are declared."""

    owner: str
    name: str
    fields: list[Json]
    versions: Versions


def structs_of(schema: Json) -> Iterator[Struct]:
    """The structs of a message, inner ones first."""
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    seen: set[str] = set()

    def walk(fields: list[Json], versions: Versions) -> Iterator[Struct]:
        for field in fields:
            name = field["type"].removeprefix("[]")
            own = Versions.parse(field["versions"]) & versions
            if name in SCALARS or name == "records" or own.empty or name in seen:
                continue
            inner = field.get("fields") or common[name]
            reach = valid_versions(schema) if name in common else own
            yield from walk(inner, reach)
            seen.add(name)
            yield Struct(schema["name"], name, [f for f in inner if lives(f, reach)], reach)

    yield from walk(schema.get("fields", []), valid_versions(schema))


def lives(field: Json, versions: Versions) -> bool:
    return not (Versions.parse(field["versions"]) & versions).empty


def class_names(structs: list[Struct]) -> dict[tuple[str, str], str]:
    """The class of each (message, struct): Kafka's name, told apart where request and response differ."""
    names: dict[tuple[str, str], str] = {}
    for struct in structs:
        clash = any(other.name == struct.name and not same(other, struct) for other in structs)
        kinds = [kind for kind in ("Request", "Response") if struct.owner.endswith(kind)]
        prefix = kinds[0] if kinds else struct.owner
        names[struct.owner, struct.name] = (prefix if clash else "") + struct.name
    return names


def same(left: Struct, right: Struct) -> bool:
    def facts(struct: Struct) -> str:
        return re.sub(r'"about": "[^"]*"', "", json.dumps([struct.fields, struct.versions], sort_keys=True))

    return facts(left) == facts(right)


def default_of(field: Json, kind: str) -> str:
    """`default=...` or `factory=...`, as Kafka initialises the field."""
    given = field.get("default")
    nullable = "nullableVersions" in field
    if given == "null" or (kind == "records" and nullable):
        return "default=None"
    if field["type"].startswith("[]"):
        return "factory=list"
    if kind in ("string", "str"):
        return f"default={given or ''!r}".replace("'", '"')
    if kind == "bool":
        return f"default={str(given).lower() == 'true'}"
    if kind in ("bytes", "records"):
        return 'default=b""'
    if kind == "uuid":
        return "default=ZERO_UUID"
    if kind == "float64":
        return f"default={float(given or 0)}"
    if kind in SCALARS:
        return f"default={int(str(given or 0), 0)}"
    return f"factory={kind}"


def declare_field(field: Json, within: Versions, valid: Versions, class_name: str, records: str) -> str:
    kind = field["type"].removeprefix("[]")
    versions = Versions.parse(field["versions"]) & within
    annotation = SCALARS.get(kind) or (records if kind == "records" else class_name)
    if field["type"].startswith("[]"):
        annotation = f"list[{annotation}]"
    nullable = Versions.parse(field.get("nullableVersions", "none")) & versions
    default = default_of(field, kind if kind in SCALARS or kind == "records" else class_name)
    if not nullable.empty or default == "default=None":
        annotation += " | None"
    arguments: list[str] = []
    if not versions.covers(within):
        arguments.append(f'"{versions.text(valid)}"')
    arguments.append(default)
    if field.get("tag") is not None:
        arguments.append(f"tag={field['tag']}")
    if not nullable.empty and not nullable.covers(versions):
        arguments.append(f'nullable="{nullable.text(valid)}"')
    if field.get("ignorable") and not versions.covers(within):
        arguments.append("ignorable=True")
    value = default.removeprefix("default=")
    if len(arguments) > 1 or default.startswith("factory="):
        value = f"wire({', '.join(arguments)})"
    return f"    {snake(field['name'])}: {annotation} = {value}"


def declare_class(struct: Struct, valid: Versions, names: dict[tuple[str, str], str]) -> list[str]:
    records = "Records" if struct.owner.endswith("Request") else "SentRecords"
    lines: list[str] = []
    for field in struct.fields:
        class_name = names.get((struct.owner, field["type"].removeprefix("[]")), "")
        lines.append(declare_field(field, struct.versions, valid, class_name, records))
    return lines or ["    pass"]


def declare_module(schemas: list[Json]) -> str:
    """One module with all these messages."""
    structs = [struct for schema in schemas for struct in structs_of(schema)]
    names = class_names(structs)
    body: list[str] = []
    printed: set[str] = set()
    for schema in schemas:
        valid = valid_versions(schema)
        for struct in structs_of(schema):
            name = names[struct.owner, struct.name]
            if name not in printed:
                printed.add(name)
                body += ["", "", "@struct", f"class {name}:", *declare_class(struct, valid, names)]
        fields = [field for field in schema.get("fields", []) if lives(field, valid)]
        whole = Struct(schema["name"], schema["name"], fields, valid)
        versions = valid.text(valid) if valid.first == valid.last else f"{valid.first}-{valid.last}"
        versions = versions.rstrip("+")
        flexible = schema["flexibleVersions"]
        head = f'@message(key={schema.get("apiKey", -1)}, versions="{versions}", flexible="{flexible}")'
        body += ["", "", head, f"class {schema['name']}:", *declare_class(whole, valid, names)]
    text = "\n".join(body)
    words = set(re.findall(r"\w+", text))
    used = [name for name in CODEC_NAMES if name in words and (name != "wire" or "wire(" in text)]
    title = ", ".join(f"{schema['name']} (key {schema.get('apiKey', '-')})" for schema in schemas)
    imports = [f"from tidelog.wire.codec import {', '.join(used)}"]
    if "ZERO_UUID" in words:
        imports.append("from tidelog.wire.uuids import ZERO_UUID")
    return "\n".join([f'"""{title}."""', "", *imports, *body[1:], ""])


CODEC_NAMES = [
    "Records",
    "SentRecords",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "message",
    "struct",
    "u16",
    "u32",
    "uuid",
    "wire",
]


def find_schemas(schemas: dict[str, Json], name: str) -> list[Json]:
    """The schema of that name, or an API's request and response; a response has the versions of its request."""
    found = [schemas[full] for full in (name, f"{name}Request", f"{name}Response") if full in schemas]
    unstable = bool(found) and found[0].get("latestVersionUnstable", False)
    return [{**schema, "latestVersionUnstable": unstable} for schema in found]


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    source, *names = arguments
    schemas = read_schemas(Path(source))
    wanted: list[Json] = []
    for name in names:
        found = find_schemas(schemas, name)
        if not found:
            print(f"{source} has no schema {name}; give an API such as Produce, or a schema's name", file=sys.stderr)
            return 1
        wanted += found
    print(declare_module(wanted), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
