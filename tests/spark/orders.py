"""One pipeline file, the records that it reads, and every row that must come out of it, wherever it runs."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, Producer, read

SETTINGS = {"transaction.two.phase.commit.enable": True, "transaction.state.log.num.partitions": 4}
COUNT = 2000
FILE = """
name = "orders"
state = "state"

[source.orders]
topics = ["orders"]
decode = "json"
schema = "id long, customer string, amount double, at timestamp"
watermark = "at 1 minute"

[[step]]
name = "dated"
sql = "select id, customer, amount, at, date_format(at, 'yyyy-MM-dd') as day from orders"

[[step]]
name = "minutes"
sql = '''
select window.start as minute, customer, count(*) as orders, round(sum(amount), 2) as worth
from orders group by window(at, '1 minute'), customer
'''

[[sink]]
from = "minutes"
mode = "update"
topic = "by-minute"
key = "customer"
partitions = 2

[[sink]]
from = "dated"
topic = "dated"
key = "customer"
partitions = 2

[[sink]]
from = "dated"
path = "lake"
partition_by = ["day"]

[bad_rows]
topic = "dead"
partitions = 1
"""
MADE = {"by-minute", "dated", "dead"}
"""The topics that the pipeline makes."""

Result = dict[str, Counter[str]]


def rows() -> Iterator[dict[str, Any]]:
    for number in range(COUNT):
        at = f"2026-01-31T23:{number * 60 // COUNT:02d}:00Z" if number % 3 else "2026-02-01T00:00:30Z"
        yield {"id": number, "customer": f"c{number % 7}", "amount": number / 4, "at": at}


def fill(bootstrap: str) -> None:
    """The orders, and one record that can't be read."""
    Admin(bootstrap).create_topic("orders", 4)
    with Producer(bootstrap) as producer:
        for order in rows():
            producer.send("orders", json.dumps(order).encode(), key=str(order["id"]).encode())
        producer.send("orders", b"{torn")


def expected() -> Result:
    """What must come out, reckoned without Spark."""
    minutes: dict[tuple[str, str], list[float]] = {}
    dated: Counter[str] = Counter()
    for order in rows():
        at = order["at"].replace("Z", ".000Z")
        minutes.setdefault((at[:17] + "00.000Z", order["customer"]), []).append(order["amount"])
        dated[_text(order | {"at": at, "day": at[:10]}, order["customer"])] += 1
    counted = Counter(
        _text({"minute": at, "customer": who, "orders": len(all_), "worth": round(sum(all_), 2)}, who)
        for (at, who), all_ in minutes.items()
    )
    return {"by-minute": counted, "dated": dated, "dead": Counter(["{torn"]), "lake": Counter(dated)}


def result(bootstrap: str, lake: list[dict[str, Any]], places: Iterable[str] = (*sorted(MADE), "lake")) -> Result:
    """Every row that came out, in each place, and how often: of a minute the last word, all else as it stands."""
    return {place: Counter(_rows(bootstrap, place, lake)) for place in places}


def _rows(bootstrap: str, place: str, lake: list[dict[str, Any]]) -> list[str]:
    if place == "lake":
        return [_text(row | {"at": _time(row["at"]), "day": str(row["day"])}, row["customer"]) for row in lake]
    messages = list(read(bootstrap, place, stop_at_end=True, isolation_level="read_committed"))
    if place == "dead":
        return [(message.value or b"").decode() for message in messages]
    rows = [(json.loads(message.value or b"{}"), (message.key or b"").decode()) for message in messages]
    if place == "by-minute":
        return list({(row["minute"], key): _text(row, key) for row, key in rows}.values())
    return [_text(row, key) for row, key in rows]


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def run(
    folder: Path, bootstrap: str, master: str, environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """`tidelog pipeline run`, word by word."""
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(folder / "orders.toml"), "--once"]
    return subprocess.run(
        [*command, "-b", bootstrap, "--master", master],
        env=environment,
        capture_output=True,
        text=True,
        timeout=JVM_TIMEOUT_S,
        check=False,
    )


def _text(row: dict[str, Any], key: str) -> str:
    return json.dumps([key, row], sort_keys=True)
