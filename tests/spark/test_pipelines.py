"""Pipelines from file to result, in a real Spark."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import JVM_TIMEOUT_S
from tidelog.client import Admin, Producer, read
from tidelog.client.groups import Groups
from tidelog.spark.pipeline import redrive, replay
from tidelog.spark.pipeline.file.check import PipelineError
from tidelog.spark.pipeline.file.model import load
from tidelog.spark.pipeline.run.runner import check, run
from tidelog.spark.pipeline.run.status import read_status
from tidelog.spark.pipeline.sinks import lake
from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S)]

READY = Path(__file__).parents[2] / "pipelines"


@pytest.fixture
def topics(broker: Broker) -> Callable[..., None]:
    """Topics made anew: each test has its own records under the names that the ready pipelines use."""

    def make(*names: str) -> None:
        admin = Admin(broker.bootstrap)
        there = {topic.name for topic in admin.topics()}
        for name in names:
            if name in there:
                admin.delete_topic(name)
            admin.create_topic(name, 2)

    return make


@pytest.fixture
def send(broker: Broker) -> Callable[..., None]:
    def write(topic: str, *rows: Any) -> None:
        with Producer(broker.bootstrap) as producer:
            for row in rows:
                key, value = row if isinstance(row, tuple) else (None, row)
                sent = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
                producer.send(topic, sent, key=key)

    return write


@pytest.fixture
def go(spark: Any, broker: Broker, tmp_path: Path) -> Callable[..., Path]:
    """Run a ready pipeline once in a folder of its own."""

    def once(name: str) -> Path:
        if not (tmp_path / name).exists():
            shutil.copy(READY / name, tmp_path / name)
        run(load(tmp_path / name, broker.bootstrap), spark, once=True, tell=lambda text: None)
        return tmp_path

    return once


def values(broker: Broker, topic: str) -> list[Any]:
    messages = read(broker.bootstrap, topic, stop_at_end=True, isolation_level="read_committed")
    return [json.loads(message.value or b"null") for message in messages]


def left_out_summary(state: Path, query: str) -> str:
    """What the status says of rows that a query left out."""
    status = read_status(state)
    assert status is not None
    return status["left_out"][query]["told"]


def order(number: int, customer: str = "ada", amount: float = 1.5, at: str = "2026-01-31T12:00:00Z") -> dict[str, Any]:
    return {"id": number, "customer": customer, "amount": amount, "at": at}


@pytest.mark.long
def test_orders_land_in_the_lake_and_bad_ones_as_dead_letters(
    spark: Any, broker: Broker, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path]
) -> None:
    topics("orders", "orders-dead")
    send("orders", order(1), order(2, at="2026-02-01T00:00:00Z"), order(3))
    with Producer(broker.bootstrap) as producer:
        producer.send("orders", b"{not json", key=b"k", headers=[("trace", b"7"), ("trace", None)])
    [bad_offset] = [
        each.offset for each in read(broker.bootstrap, "orders", stop_at_end=True) if each.value == b"{not json"
    ]
    folder = go("lake-append.toml")
    send("orders", order(4))
    go("lake-append.toml")
    rows = spark.read.parquet(str(folder / "lake/orders")).orderBy("id").collect()
    assert [(row.id, str(row.day)) for row in rows] == [
        (1, "2026-01-31"),
        (2, "2026-02-01"),
        (3, "2026-01-31"),
        (4, "2026-01-31"),
    ]
    [letter] = read(broker.bootstrap, "orders-dead", stop_at_end=True, isolation_level="read_committed")
    headers = dict(letter.headers)
    assert (letter.key, letter.value, letter.headers[:2]) == (b"k", b"{not json", [("trace", b"7"), ("trace", None)])
    assert (headers["tidelog.topic"], headers["tidelog.pipeline"]) == (b"orders", b"orders-to-lake")
    assert (headers["tidelog.reason"], headers["tidelog.offset"]) == (b"not JSON", b"%d" % bad_offset)
    status = read_status(folder / "state/orders-to-lake")
    assert status is not None
    assert (status["outcome"], sorted(status["queries"])) == ("done", ["bad-rows", "orders"])
    assert redrive.redrive(broker.bootstrap, "orders-dead", None, None) == {"orders": 1}
    assert redrive.redrive(broker.bootstrap, "orders-dead", None, None) == {}
    *_, again_there = (each for each in read(broker.bootstrap, "orders", stop_at_end=True) if each.key == b"k")
    assert (again_there.value, again_there.headers) == (b"{not json", [("trace", b"7"), ("trace", None)])


@pytest.mark.long
def test_a_table_keeps_the_newest_row_of_each_key(
    spark: Any, broker: Broker, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path]
) -> None:
    topics("customers", "customers-dead")
    send("customers", *((b"%d" % i, {"id": i, "name": f"n{i}", "city": "Brest"}) for i in range(20)))
    folder = go("lake-upsert.toml")
    send("customers", (b"3", {"id": 3, "name": "n3", "city": "Dover"}), (b"4", None), (b"nobody", None))
    go("lake-upsert.toml")
    rows = lake.current(spark, str(folder / "lake/customers")).orderBy("id").collect()
    assert [row.id for row in rows] == [i for i in range(20) if i != 4]
    assert rows[3].city == "Dover"
    status = read_status(folder / "state/customers-table")
    assert status is not None
    assert status["left_out"]["customers"]["told"].startswith(
        '1 row without id, left out of the table; for example {"_offset":'
    )
    topics("customers-again")
    sent = replay.replay_table(broker.bootstrap, folder / "lake/customers", "customers-again", "id", lambda count: None)
    assert sent == 19
    assert sorted(row["id"] for row in values(broker, "customers-again")) == [i for i in range(20) if i != 4]


def test_windows_are_counted_into_a_topic(
    broker: Broker, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path]
) -> None:
    topics("orders", "orders-dead", "orders-by-minute")
    send("orders", order(1, amount=2), order(2, amount=3), order(3, amount=4, at="2026-01-31T12:01:30Z"))
    send("orders", {"id": 4, "amount": 5}, (b"1", None))  # an order without a time is in no window; a tombstone is none
    before = set(Groups(broker.bootstrap).names())
    folder = go("windowed-counts.toml")
    made = set(Groups(broker.bootstrap).names()) - before
    assert {name.startswith("tidelog-spark-job:") for name in made} == {True}  # of the sinks: what is read makes none
    counts = sorted((row["orders"], row["worth"]) for row in values(broker, "orders-by-minute"))
    assert counts == [(1, 4.0), (2, 5.0)]
    assert left_out_summary(folder / "state/orders-by-minute", "bad-rows").endswith(": at is missing or null")


def test_an_audit_proves_a_topic_whole_or_not(
    spark: Any, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path]
) -> None:
    def numbers(key: bytes, *sequence: Any) -> list[tuple[bytes, Any]]:
        return [(key, {"seq": number}) for number in sequence]

    topics("audited")
    send("audited", *numbers(b"whole", 7, 8), (b"whole", None))
    send(
        "audited", *numbers(b"gap", 1, 2, 5, 6), *numbers(b"swapped", 1, 3, 2, 4), *numbers(b"twice", 1, 2, 3, 1, 2, 3)
    )
    send("audited", (b"x", b"{"), *numbers(b"x", "x"))
    folder = go("audit.toml")
    [row] = spark.read.parquet(str(folder / "lake/audit")).collect()
    assert (row.records, row["keys"], row.unreadable) == (18, 5, 2)
    assert (row.gaps, row.missing, row.duplicates, row.out_of_order, row.whole) == (1, 2, 3, 2, False)


@pytest.mark.long
def test_a_change_log_becomes_the_table_as_it_is(
    spark: Any, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path]
) -> None:
    topics("db.accounts", "db.accounts-dead")
    ada, bob = {"id": 1, "owner": "ada", "balance": 5.0}, {"id": 2, "owner": "bob", "balance": 7.0}
    send("db.accounts", (b"1", {"before": None, "after": ada, "op": "c"}), (b"2", {"after": bob, "op": "c"}))
    send("db.accounts", (b"1", {"before": ada, "after": {**ada, "balance": 9.0}, "op": "u"}))
    send("db.accounts", (b"2", {"before": bob, "after": None, "op": "d"}))
    send("db.accounts", (b"2", None), {"payload": {"op": "c", "after": bob}}, {"op": "t"})
    folder = go("cdc.toml")
    rows = lake.current(spark, str(folder / "lake/accounts")).collect()
    assert [(row.id, row.owner, row.balance) for row in rows] == [(1, "ada", 9.0)]
    state = folder / "state/cdc-accounts"
    assert left_out_summary(state, "bad-rows").endswith(": op is missing or null")  # an envelope in another one
    summary = left_out_summary(state, "accounts")
    assert summary.startswith("1 row without id, left out of the table")  # a truncation has no row


@pytest.mark.long
def test_orders_are_enriched_by_a_table(
    broker: Broker, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path], tmp_path: Path
) -> None:
    topics("orders", "orders-dead", "orders-enriched")
    (tmp_path / "customers.csv").write_text("customer,city\nada,Dover\n")
    send("orders", order(1), order(2, customer="bob"), (b"3", None))
    go("enrich.toml")
    assert sorted((row["id"], row["city"]) for row in values(broker, "orders-enriched")) == [(1, "Dover"), (2, None)]


@pytest.mark.long
def test_payments_come_once(
    broker: Broker, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path]
) -> None:
    topics("payments", "payments-dead", "payments-once")
    paid = {"id": "p1", "order_id": 1, "amount": 2.0, "at": "2026-01-31T12:00:00Z"}
    send("payments", paid, paid, {**paid, "id": "p2"}, (b"p1", None))
    send("payments", {**paid, "id": None}, {**paid, "id": None}, {**paid, "at": None})
    go("dedup.toml")
    send("payments", paid)
    folder = go("dedup.toml")
    assert sorted(row["id"] for row in values(broker, "payments-once")) == ["p1", "p2"]
    assert left_out_summary(folder / "state/payments-once", "bad-rows").startswith("3 rows could not be decoded")


@pytest.mark.long
def test_clicks_become_visits(
    broker: Broker, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path]
) -> None:
    topics("clicks", "clicks-dead", "visits")
    clicks = [("ada", "12:00"), ("ada", "12:20"), ("ada", "13:30"), ("bob", "19:00")]
    send("clicks", *({"customer": who, "page": "/", "at": f"2026-01-31T{at}:00Z"} for who, at in clicks))
    send("clicks", (b"ada", None), {"customer": "ada", "page": "/"})
    folder = go("sessions.toml")
    counts = sorted((row["customer"], row["pages"]) for row in values(broker, "visits"))
    assert counts == [("ada", 1), ("ada", 2)]  # bob's may go on yet
    assert left_out_summary(folder / "state/visits", "bad-rows").startswith("1 row could not be decoded")


def test_wrong_columns_and_topics_are_found_before_it_runs(
    spark: Any, broker: Broker, topics: Callable[..., None], tmp_path: Path
) -> None:
    topics("orders", "orders-dead", "orders-by-minute")
    text = (READY / "windowed-counts.toml").read_text()
    file = tmp_path / "p.toml"
    for old, new, said in [
        ("sum(amount)", "sum(amout)", r"p.toml:14: .*amout.*"),
        ('key = "minute"', 'key = "hour"', r"p.toml:23: key: there is no column hour among minute, orders, worth"),
        ('"at 10 minutes"', '"when 10 minutes"', r"p.toml:9: watermark: there is no column when"),
        ('topics = ["orders"]', 'topics = ["ordes"]', r"p.toml:6: there is no topic ordes; did you mean orders\?"),
        ("amount double, at", "amount doubel, at", r"p.toml:8: schema = .*DOUBEL.*; write name and type"),
        ("amount double, at", "_offset long, amount double, at", r"p.toml:8: _offset is a column of every decoded"),
        ("at timestamp not null", "at string", r"p.toml:9: watermark: at is a string, a timestamp is needed"),
        ('watermark = "at 10', 'options = { foo = "1" }\nwatermark = "at 10', r"p.toml:9: unknown option foo"),
        ("count(*) as orders", "count(*) as minute", r"p.toml:20: minutes has two columns minute: name one otherwise"),
        ("from orders\n", "from minutes\n", r"p.toml:15: minutes is made by this step or a later one"),
    ]:
        file.write_text(text.replace(old, new))
        with pytest.raises(PipelineError, match=said):
            check(load(file, broker.bootstrap), spark)
    file.write_text(text.replace('watermark = "at 10 minutes"', "").replace('mode = "update"', 'mode = "append"'))
    with pytest.raises(
        PipelineError, match=r"p.toml:21: .*without watermark.*: give the source a watermark .* or set mode"
    ):
        check(load(file, broker.bootstrap), spark)
    file.write_text(text)
    assert check(load(file, broker.bootstrap), spark)["minutes"] == ["minute", "orders", "worth"]
    file.write_text(text.replace('name = "minutes"', 'name = "other"').replace('from = "minutes"', 'from = "other"'))
    file.write_text(file.read_text().replace("from orders", "from minutes"))  # no table of the pipeline before
    with pytest.raises(PipelineError, match=r"p.toml:15: .*`minutes` cannot be found"):
        check(load(file, broker.bootstrap), spark)


JOIN = """
name = "paid"
state = "state"

[source.orders]
topics = ["orders"]
decode = "json"
schema = "id long, at timestamp"
watermark = "at 10 minutes"

[source.payments]
topics = ["payments"]
decode = "json"
schema = "order_id long, amount double, at timestamp"
watermark = "at 10 minutes"

[[step]]
name = "paid"
sql = \"\"\"
select orders.id, payments.amount, orders.at
from orders join payments
on orders.id = payments.order_id and payments.at between orders.at and orders.at + interval 1 hour
\"\"\"

[[sink]]
from = "paid"
topic = "paid"
key = "id"
partitions = 1

[bad_rows]
topic = "paid-dead"
partitions = 1
"""


@pytest.mark.long
def test_two_streams_are_joined_whichever_side_comes_first(
    broker: Broker, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path], tmp_path: Path
) -> None:
    topics("orders", "payments", "paid", "paid-dead")
    (tmp_path / "join.toml").write_text(JOIN)
    day = "2026-01-31T"

    def payment(order_id: int, at: str) -> dict[str, Any]:
        return {"order_id": order_id, "amount": 2.0, "at": f"{day}{at}Z"}

    send("orders", order(1, at=f"{day}12:00:00Z"), order(2, at=f"{day}12:00:00Z"), b"{")
    send("payments", payment(3, "12:00:30"))
    go("join.toml")
    send("payments", payment(1, "12:30:00"), payment(2, "14:00:00"))  # the second is too late for its order
    send("orders", order(3, at=f"{day}12:00:10Z"))
    folder = go("join.toml")
    assert sorted(row["id"] for row in values(broker, "paid")) == [1, 3]
    status = read_status(folder / "state")
    assert status is not None
    assert sorted(status["queries"]) == ["bad-rows-orders", "bad-rows-payments", "paid"]
    assert status["left_out"]["bad-rows-orders"]["rows"] == 1


@pytest.mark.long
def test_rows_later_than_the_watermark_are_told_of(
    broker: Broker, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path]
) -> None:
    topics("orders", "orders-dead", "orders-by-minute")
    send("orders", order(1, at="2026-01-31T12:00:00Z"), order(2, at="2026-01-31T15:00:00Z"))
    go("windowed-counts.toml")
    send("orders", order(3, at="2026-01-31T12:00:00Z"))
    folder = go("windowed-counts.toml")
    status = read_status(folder / "state/orders-by-minute")
    assert status is not None
    assert status["left_out"]["orders-by-minute-late"]["told"] == "1 row came later than the watermark allows"


STILL = """
name = "still"
state = "state"

[source.orders]
topics = ["orders"]
decode = "json"
schema = "id long, customer string"

[source.customers]
topics = ["customers"]
stream = false
decode = "json"
schema = "customer string, city string"

[[step]]
name = "enriched"
sql = "select id, city from orders left join customers on orders.customer = customers.customer"

[[sink]]
from = "enriched"
topic = "orders-enriched"
partitions = 1

[bad_rows]
topic = "orders-dead"
"""


@pytest.mark.long
def test_bad_rows_of_a_topic_that_is_a_table_are_letters_whenever_they_come_and_once(
    broker: Broker, topics: Callable[..., None], send: Callable[..., None], go: Callable[..., Path], tmp_path: Path
) -> None:
    topics("orders", "customers", "orders-dead", "orders-enriched")
    (tmp_path / "still.toml").write_text(STILL)
    send("customers", {"customer": "ada", "city": "Dover"}, b"{first")
    send("orders", order(1))
    go("still.toml")
    send("customers", {"customer": "bob", "city": "Brest"}, b"{second")
    send("orders", order(2, customer="bob"))
    folder = go("still.toml")
    assert sorted((row["id"], row["city"]) for row in values(broker, "orders-enriched")) == [(1, "Dover"), (2, "Brest")]
    letters = list(read(broker.bootstrap, "orders-dead", stop_at_end=True, isolation_level="read_committed"))
    assert sorted(letter.value or b"" for letter in letters) == [b"{first", b"{second"]
    assert left_out_summary(folder / "state", "bad-rows-customers").startswith("2 rows could not be decoded")
