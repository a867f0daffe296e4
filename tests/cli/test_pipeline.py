"""`tidelog pipeline` without Spark: files checked, listed, told of; records sent once more."""

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer as TransactionalProducer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tidelog.cli.app import app
from tidelog.cli.pipeline_told import load_file
from tidelog.client import Admin, ClientError, Producer, read
from tidelog.spark.pipeline.file.model import load
from tidelog.spark.pipeline.redrive import Sending
from tidelog.testing import Broker

READY = Path(__file__).parents[2] / "pipelines"


def tidelog(*args: object) -> Result:
    return CliRunner().invoke(app, ["pipeline", *map(str, args)])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def write_status(file: Path, outcome: str, **more: object) -> None:
    state = load(file).state
    state.mkdir(parents=True, exist_ok=True)
    query = {"active": True, "batch": 7, "rows": 1200, "bytes": 2048, "rows_per_s": 3456.7, "batch_ms": 250, "lag": 42}
    query["at"] = "2026-01-31T12:00:00.000Z"
    at = datetime(2026, 1, 31, 12, 0, 9, tzinfo=UTC).timestamp()
    told = {"pipeline": "x", "outcome": outcome, "pid": 1, "at": at, "queries": {"orders": query}}
    (state / "status.json").write_text(json.dumps(told | more))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    copy = tmp_path / "orders.toml"
    copy.write_text((READY / "lake-append.toml").read_text())
    return copy


def test_a_file_is_checked_without_spark(file: Path) -> None:
    result = tidelog("check", file, "--no-spark")
    assert (result.exit_code, result.output) == (0, f"{file}: orders-to-lake is fine.\n")
    assert json.loads(tidelog("check", file, "--no-spark", "--json").output)[str(file)]["pipeline"] == "orders-to-lake"


def test_a_problem_is_said_with_its_line(file: Path) -> None:
    file.write_text(file.read_text().replace("decode", "decod"))
    result = tidelog("check", file, "--no-spark")
    assert result.exit_code == 1
    assert f"{file}:7: unknown key decod; did you mean decode?" in result.output


def test_pipelines_are_listed_with_their_state(file: Path) -> None:
    (file.parent / "other.toml").write_text("[project]\n")
    (file.parent / "broken.toml").write_text("[source.a]\n")
    found = json.loads(tidelog("list", file.parent, "--json").output)
    assert [(each["file"], each["state"].partition(":")[0]) for each in found] == [
        ("broken.toml", "broken"),
        ("orders.toml", "never run"),
    ]


def test_a_folder_without_pipelines_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"There are no pipelines in {tmp_path}:" in tidelog("list").output


def test_status_tells_rates_and_lag_and_whether_it_still_runs(file: Path) -> None:
    assert "never ran" in tidelog("status", file).output
    write_status(file, "running", at=time.time())
    with load(file).hold_state():
        text = tidelog("status", file).output
        assert text.startswith("orders-to-lake  running\n")
        assert all(part in text for part in ("3,457", "42", "250", "1,200", "2.0 KB"))
        assert [each["state"] for each in json.loads(tidelog("list", file.parent, "--json").output)] == ["running"]
    assert json.loads(tidelog("status", file, "--json").output)["outcome"] == "gone"
    assert "Its process ended without a word: run it again" in tidelog("status", file).output


def test_status_tells_why_a_run_failed_and_which_one_has_fallen_silent(file: Path) -> None:
    write_status(file, "failed", why="orders: there is no room on the disk")
    text = tidelog("status", file).output
    assert "failed, " in text
    assert "\n  orders: there is no room on the disk\n" in text
    assert "9 s ago" in text  # the last batch, when the status was written
    assert "failed: orders: there is no room" in tidelog("list", file.parent).output
    write_status(file, "running", queries={"lake": {"active": True, "message": "Processing new data"}})
    with load(file).hold_state():
        text = tidelog("status", file).output
    assert "running, and silent for " in text
    assert "  lake: in its first batch: Processing new data\n" in text


def test_every_file_is_checked_whatever_is_wrong_with_the_first(file: Path) -> None:
    broken = file.with_name("a.toml")
    broken.write_text(file.read_text().replace("decode", "decod"))
    result = tidelog("check", broken, file, "--no-spark")
    assert result.exit_code == 1
    assert f"{broken}:7: unknown key decod" in result.output
    assert f"{file}: orders-to-lake is fine." in result.output
    told = json.loads(tidelog("check", broken, file, "--no-spark", "--json").output)
    assert [sorted(each) for each in told.values()] == [["problems"], ["decoder", "pipeline", "tables"]]


@pytest.mark.parametrize("command", ["run", "check", "declare", "replay"])
def test_without_pyspark_the_extra_is_named(file: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "tidelog.spark.pipeline.run.runner", None)
    more = {"declare": ["--to", file.parent / "project"], "replay": ["--table", file.parent]}.get(command, [])
    result = tidelog(command, file, *more)
    assert (result.exit_code, "is not installed\n       pip install 'tidelog[spark]'" in result.output) == (1, True)


@pytest.mark.parametrize("start", ["soon", "42", "-10", "end"])
def test_a_start_that_is_none_is_refused_before_anything_starts(file: Path, start: str) -> None:
    result = tidelog("run", file, "--from", start, "-b", "127.0.0.1:1")
    assert (result.exit_code, "write earliest, latest, 2h or 2026-01-31T12:00" in result.output) == (2, True)


def test_a_topic_that_is_not_there_and_flags_that_do_nothing_are_told(broker: Broker, tmp_path: Path) -> None:
    for command in (["redrive", "none-dead"], ["replay", "x", "--topic", "none-dead"]):
        result = tidelog(*command, "-b", broker.bootstrap)
        assert (result.exit_code, "there is no topic none-dead" in result.output) == (1, True)
        assert "Traceback" not in result.output
    result = tidelog("replay", "x", "--table", tmp_path, "--from", "3")
    assert (result.exit_code, "--from is for --topic" in result.output) == (2, True)
    result = tidelog("replay", "x", "--topic", "y", "--key", "id")
    assert (result.exit_code, "--key is for --table" in result.output) == (2, True)


def test_dead_letters_are_sent_back_once(broker: Broker) -> None:
    for topic in ("shop", "shop-dead"):
        Admin(broker.bootstrap).create_topic(topic, 1)
    with Producer(broker.bootstrap) as producer:
        for number in range(3):
            headers = [("tidelog.topic", b"shop"), ("tidelog.reason", b"broken"), ("mine", b"1")]
            producer.send("shop-dead", b"%d" % number, headers=headers)
    assert tidelog("redrive", "shop-dead", "--dry-run", "-b", broker.bootstrap).output == "Would send 3 to shop.\n"
    assert tidelog("redrive", "shop-dead", "--limit", 2, "-b", broker.bootstrap).output == "Sent 2 to shop.\n"
    sent = json.loads(tidelog("redrive", "shop-dead", "--json", "-b", broker.bootstrap).output)
    assert sent == {"sent": {"shop": 1}, "dry_run": False}
    assert "that were not sent already" in tidelog("redrive", "shop-dead", "-b", broker.bootstrap).output
    found = list(read(broker.bootstrap, "shop", stop_at_end=True))
    assert [(message.value, message.headers) for message in found] == [
        (b"%d" % number, [("mine", b"1")]) for number in range(3)
    ]


def test_a_redrive_that_was_killed_is_taken_up_without_sending_twice(broker: Broker) -> None:
    for topic, partitions in (("port", 3), ("port-dead", 1)):
        Admin(broker.bootstrap).create_topic(topic, partitions)
    with Producer(broker.bootstrap) as producer:
        for number in range(5):
            headers = [("tidelog.topic", b"port"), ("tidelog.partition", b"%d" % (number % 3))]
            producer.send("port-dead", b"%d" % number, headers=headers)
    killed = TransactionalProducer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "redrive-port-dead", "log_level": 0}
    )
    killed.init_transactions(10)
    killed.begin_transaction()
    for number in range(3):
        killed.produce("port", b"%d" % number, partition=number)
    killed.flush(10)  # sent, and no more: as after kill -9
    assert tidelog("redrive", "port-dead", "-b", broker.bootstrap).output == "Sent 5 to port.\n"
    found = list(read(broker.bootstrap, "port", stop_at_end=True, isolation_level="read_committed"))
    assert sorted((each.partition, each.value) for each in found) == [
        (0, b"0"),
        (0, b"3"),
        (1, b"1"),
        (1, b"4"),
        (2, b"2"),
    ]
    Admin(broker.bootstrap).delete_topic("port")
    with Producer(broker.bootstrap) as producer:
        producer.send("port-dead", b"6", headers=[("tidelog.topic", b"port")])
        producer.send("port-dead", b"7")
    result = tidelog("redrive", "port-dead", "-b", broker.bootstrap)
    assert (result.exit_code, "there is no topic port" in result.output, "--to" in result.output) == (1, True, True)
    result = tidelog("redrive", "port-dead", "--to", "tides-dead", "-b", broker.bootstrap)
    assert "there is no topic tides-dead" in result.output


def test_of_two_that_redrive_the_first_is_told_that_another_goes_on(broker: Broker) -> None:
    for topic in ("bay", "bay-dead"):
        Admin(broker.bootstrap).create_topic(topic, 1)
    with Producer(broker.bootstrap) as producer:
        producer.send("bay-dead", b"1", headers=[("tidelog.topic", b"bay")])
    first = Sending(broker.bootstrap, "bay-dead")
    [letter] = read(broker.bootstrap, "bay-dead", stop_at_end=True)
    assert tidelog("redrive", "bay-dead", "-b", broker.bootstrap).output == "Sent 1 to bay.\n"
    for _ in range(2):
        with pytest.raises(ClientError, match="another process began to redrive bay-dead meanwhile"):
            first.send([(("bay", 0), letter)], ("bay-dead", 0))
    assert len(list(read(broker.bootstrap, "bay", stop_at_end=True, isolation_level="read_committed"))) == 1


def test_a_stretch_of_a_topic_is_replayed(broker: Broker) -> None:
    for topic in ("tides", "tides-again"):
        Admin(broker.bootstrap).create_topic(topic, 1)
    with Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send("tides", b"%d" % number, key=b"k")
    result = tidelog("replay", "tides-again", "--topic", "tides", "--from", 3, "--until", 6, "-b", broker.bootstrap)
    assert result.output == "Sent 3 records to tides-again.\n"
    found = list(read(broker.bootstrap, "tides-again", stop_at_end=True))
    assert [(message.key, message.value) for message in found] == [(b"k", b"3"), (b"k", b"4"), (b"k", b"5")]
    assert found[0].headers == [("tidelog.replayed", b"tides-0:3")]
    assert tidelog("replay", "tides-again", "-b", broker.bootstrap).exit_code == 2


def test_a_replay_sends_nothing_where_a_part_of_it_is_gone_and_skips_what_is_not_there_yet(broker: Broker) -> None:
    admin = Admin(broker.bootstrap)
    for topic, partitions in (("ebb", 2), ("ebb-again", 1)):
        admin.create_topic(topic, partitions)
    with Producer(broker.bootstrap) as producer:
        for number in range(6):
            producer.send("ebb", b"%d" % number, partition=0)
        producer.send("ebb", b"1", partition=1)

    def replay(*flags: object) -> str:
        return tidelog("replay", "ebb-again", "--topic", "ebb", *flags, "-b", broker.bootstrap).output

    assert replay("--from", 4) == "Sent 2 records to ebb-again.\n"
    assert replay("--from", 0, "--until", "end") == "Sent 7 records to ebb-again.\n"
    place = TopicPartition("ebb", 1, 1)
    deleting = AdminClient({"bootstrap.servers": broker.bootstrap})
    deleting.delete_records([place])[place].result(10)
    assert "ebb-1 begins at offset 1: 0 is gone; nothing was sent" in replay("--from", 0)
    assert "ebb has no partition 7: it has 2" in replay("--partition", 7)
    assert len(list(read(broker.bootstrap, "ebb-again", stop_at_end=True))) == 9


@pytest.mark.parametrize("command", [["topic", "list"], ["group", "list"], ["pipeline", "redrive", "dead"]])
def test_a_broker_without_a_port_is_told_before_anything_is_asked(command: list[str]) -> None:
    for given, environment in ((["-b", "sea"], {}), ([], {"TIDELOG_BOOTSTRAP": "sea"})):
        result = CliRunner().invoke(app, [*command, *given], env=environment)
        assert (result.exit_code, "'sea' has no port: write sea:9092" in result.output) == (2, True), result.output
        assert "Traceback" not in result.output


def test_a_pipelines_broker_without_a_port_is_told_wherever_it_is_given(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (["run"], ["check"], ["declare", "--to", file.parent / "project"]):
        result = tidelog(*command, file, "-b", "sea")
        assert (result.exit_code, "'sea' has no port: write sea:9092" in result.output) == (2, True), result.output
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "sea")
    for command in ("run", "check", "status"):
        result = tidelog(command, file)
        assert (result.exit_code, "TIDELOG_BOOTSTRAP: 'sea' has no port" in result.output) == (1, True), result.output
    file.write_text('bootstrap = "sea"\n' + file.read_text())
    for command in ("run", "check"):
        result = tidelog(command, file)
        assert (result.exit_code, f"{file}:1: bootstrap: 'sea' has no port" in result.output) == (1, True)


def test_brokers_are_those_of_the_flag_the_file_or_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", "there:1")
    assert load_file(file, None).bootstrap == "there:1"
    assert load_file(file, "here:2").bootstrap == "here:2"
    file.write_text('bootstrap = "file:3"\n' + file.read_text())
    assert load_file(file, None).bootstrap == "file:3"
