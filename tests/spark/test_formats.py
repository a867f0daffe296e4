"""Avro, Protobuf, JDBC, Delta and Iceberg: pipelines in a process of their own, some with jars from Maven."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import java
from tests.spark.connector import NoConnector, fetch
from tidelog.client import Admin, Producer, read
from tidelog.testing import Broker

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

RUN_TIMEOUT_S = 400.0
AVRO = ("org.apache.spark:spark-avro_2.13:4.1.1",)
DELTA = ("io.delta:delta-spark_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
OTHER_SPARK = ("is built for another version of Spark", "IncompatibleClassChangeError", "NoSuchMethodError")

HEAD = """
name = "formats"
state = "state"

[bad_rows]
topic = "dead"
partitions = 1
"""


@pytest.fixture
def broker() -> Iterator[Broker]:
    if java() is None:
        pytest.skip("Spark needs Java 17: apt-get install openjdk-17-jre-headless")
    with Broker({"transaction.two.phase.commit.enable": True}) as broker:
        Admin(broker.bootstrap).create_topic("in", 1)
        yield broker


def jars(*artifacts: str) -> str:
    """Paths of these jars, as Spark takes them; skips where one can't be had."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog" / "spark-formats"
    home.mkdir(parents=True, exist_ok=True)
    files = [home / f"{artifact.split(':')[1]}-{artifact.split(':')[2]}.jar" for artifact in artifacts]
    for artifact, file in zip(artifacts, files, strict=True):
        if not file.exists():
            try:
                fetch(artifact, home)
            except NoConnector as error:
                pytest.skip(str(error))
    return ",".join(map(str, files))


def send(broker: Broker, *values: bytes) -> None:
    with Producer(broker.bootstrap) as producer:
        for value in values:
            producer.send("in", value)


def go(folder: Path, text: str, broker: Broker) -> str:
    """Run a pipeline once, as a person would; what it said."""
    file = folder / "formats.toml"
    file.write_text(HEAD + text)
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(file), "--once", "--master", "local[1]"]
    done = subprocess.run(
        [*command, "-b", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
        cwd=folder,
    )
    other = [line for line in done.stderr.splitlines() if any(sign in line for sign in OTHER_SPARK)]
    if done.returncode and other:
        pytest.skip(f"no jar in the registry is built for this Spark: {other[0].strip()[:300]}")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [each.value for each in read(broker.bootstrap, topic, stop_at_end=True, isolation_level="read_committed")]


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]}],
}


def avro(number: int | None, name: str | None) -> bytes:
    first = b"\x00" if number is None else bytes([2, number * 2])
    return first + (b"\x00" if name is None else bytes([2, len(name) * 2]) + name.encode())


def test_avro_is_decoded_and_what_is_none_becomes_a_dead_letter(broker: Broker, tmp_path: Path) -> None:
    send(broker, avro(1, "a"), b"\x09\x09\x09", avro(None, None), avro(2, None))
    said = go(
        tmp_path,
        f"""
[source.orders]
topics = ["in"]
decode = "avro"
schema = '{json.dumps(SCHEMA)}'
[[sink]]
from = "orders"
topic = "out"
partitions = 1
[spark]
"spark.jars" = "{jars(*AVRO)}"
""",
        broker,
    )
    rows = sorted((json.loads(value or b"null") for value in values(broker, "out")), key=str)
    assert rows == [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": None, "name": None}]
    assert values(broker, "dead") == [b"\x09\x09\x09"]
    assert "1 row could not be decoded, sent to dead; for example in-0 offset 1: not Avro of the schema" in said


def test_protobuf_is_decoded_and_what_is_none_becomes_a_dead_letter(broker: Broker, tmp_path: Path) -> None:
    from tests.spark.test_protobuf import Field, described, message

    order = message("Order", ("id", Field.TYPE_INT64), ("name", Field.TYPE_STRING), ("colour", ".shop.Colour"))
    (tmp_path / "order.desc").write_bytes(described([order]))
    send(broker, b"\x08\x07\x12\x01a\x18\x01", b"\x0a\xff")
    said = go(
        tmp_path,
        """
[source.orders]
topics = ["in"]
decode = "protobuf"
descriptor = "order.desc"
message = "shop.Order"
[[step]]
name = "blue"
sql = "select id, name, colour from orders where colour = 'BLUE'"
[[sink]]
from = "blue"
topic = "out"
partitions = 1
""",
        broker,
    )
    rows = [json.loads(value or b"null") for value in values(broker, "out")]
    assert rows == [{"id": 7, "name": "a", "colour": "BLUE"}]
    assert values(broker, "dead") == [b"\x0a\xff"]
    assert "1 row could not be decoded, sent to dead; for example in-0 offset 1: not a shop.Order: " in said


def test_a_database_is_read_and_written_by_jdbc(broker: Broker, tmp_path: Path) -> None:
    """Derby, which Spark brings: customers from one table, orders with their cities into another, and out again."""
    url = f"jdbc:derby:{tmp_path}/db;create=true"
    send(broker, b'{"id": 1, "customer": "ada"}', b'{"id": 2, "customer": "bob"}')
    (tmp_path / "customers.csv").write_text("customer,city\nada,Dover\n")
    go(
        tmp_path,
        f"""
[source.customers]
format = "csv"
path = "customers.csv"
schema = "customer string, city string"
options = {{ header = "true" }}
[[sink]]
from = "customers"
jdbc = "{url}"
table = "customers"
""",
        broker,
    )
    enrich = f"""
[source.orders]
topics = ["in"]
decode = "json"
schema = "id long, customer string"
[source.customers]
format = "jdbc"
options = {{ url = "{url}", dbtable = "customers" }}
[[step]]
name = "enriched"
sql = "select orders.id, customers.city from orders left join customers on orders.customer = customers.customer"
[[sink]]
from = "enriched"
jdbc = "{url}"
table = "enriched"
"""
    go(tmp_path, enrich.replace("[source.orders]", "[source.orders]\nmax_rows = 100"), broker)
    out = f"""
[source.enriched]
format = "jdbc"
options = {{ url = "{url}", dbtable = "enriched" }}
[[sink]]
from = "enriched"
topic = "out"
partitions = 1
"""
    go(tmp_path, out, broker)
    rows = sorted((json.loads(value or b"null") for value in values(broker, "out")), key=str)
    assert [tuple(row.values()) for row in rows] == [(1, "Dover"), (2, None)]


LAKE = """
[source.orders]
topics = ["in"]
decode = "json"
schema = "id long, customer string"
[[sink]]
name = "lake"
from = "orders"
format = "{format}"
options = {{ {options} }}
[spark]
{spark}
"""


def test_delta_is_written_once(broker: Broker, tmp_path: Path) -> None:
    settings = {
        "spark.jars": jars(*DELTA),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    text = LAKE.format(format="delta", options=f'path = "{tmp_path}/delta"', spark=_toml(settings))
    send(broker, b'{"id": 1, "customer": "ada"}')
    go(tmp_path, text, broker)
    send(broker, b'{"id": 2, "customer": "bob"}')
    go(tmp_path, text, broker)
    logged = [line for file in sorted((tmp_path / "delta/_delta_log").glob("*.json")) for line in file.open()]
    assert sum('"add"' in line for line in logged) == 2


def test_iceberg_is_written_once(broker: Broker, tmp_path: Path) -> None:
    settings = {
        "spark.jars": jars(*ICEBERG),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"{tmp_path}/iceberg",
    }
    text = LAKE.format(format="iceberg", options='path = "lake.shop.orders"', spark=_toml(settings))
    send(broker, b'{"id": 1, "customer": "ada"}')
    go(tmp_path, text, broker)
    assert list((tmp_path / "iceberg/shop/orders/data").glob("*.parquet"))


def _toml(settings: dict[str, str]) -> str:
    return "\n".join(f'"{name}" = "{value}"' for name, value in settings.items())
