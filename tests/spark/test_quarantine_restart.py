"""Setting rows aside while things go wrong: runs that are cut off anywhere, stops, steps and topics that change."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pip install tidelog[spark]")

from pyspark.errors import PySparkException

from tests.spark.conftest import JVM_TIMEOUT_S
from tests.spark.test_bad_input import wait_for
from tests.spark.test_quarantine import LAKE, lake, letters, send, topic, written
from tidelog.client import Admin
from tidelog.spark.pipeline.file.model import load
from tidelog.spark.pipeline.quarantine import bisection, notes, restart
from tidelog.spark.pipeline.run.queries import LATE
from tidelog.spark.pipeline.run.runner import run
from tidelog.spark.pipeline.run.status import read_status
from tidelog.spark.pipeline.run.stop_signals import Stop
from tidelog.testing import Broker

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(JVM_TIMEOUT_S), pytest.mark.long]

__all__ = ["topic"]

IDS = '\n[[step]]\nname = "ids"\nsql = "select id from orders"\n\n[[sink]]\nfrom = "ids"\npath = "ids"\n'
STOP_S = 30.0


class Cut(BaseException):
    """As if the process ended here."""


def cut(*args: Any, **more: Any) -> None:
    raise Cut


def then_cut(act: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **more: Any) -> None:
        act(*args, **more)
        raise Cut

    return called


@pytest.mark.parametrize(
    ("module", "name", "after"),
    [
        (notes, "add", True),  # the note stands, no letter is sent
        (restart, "send_letters", True),  # the letter is sent, nothing is counted
        (notes, "close", False),  # all is done, and nobody knows
        (notes, "close", True),  # only the query was not started again
    ],
)
def test_a_row_is_set_aside_from_the_note_on_whatever_is_cut_off(
    spark: Any,
    broker: Broker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    after: bool,
) -> None:
    """The next run has the step mended: the row is a letter all the same, once, and so it is not in the lake."""
    send(broker, topic, "1", "x", "2")
    file = written(tmp_path, topic, LAKE)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, then_cut(getattr(module, name)) if after else cut)
        with pytest.raises(Cut):
            run(load(file, broker.bootstrap), spark, once=True, tell=print)
    file.write_text(file.read_text().replace("cast(", "try_cast("))
    for _ in range(2):
        run(load(file, broker.bootstrap), spark, once=True, tell=print)
        assert lake(spark, tmp_path) == [(0, 1), (2, 2)]
        assert [key for key, _ in letters(broker, topic)] == [b"k1"]
        status = read_status(tmp_path / "state")
        assert status is not None
        assert status["left_out"]["lake-failed"]["rows"] == 1


def test_a_run_that_is_cut_off_before_the_note_has_done_nothing(
    spark: Any, broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, topic, "1", "x", "2")
    file = written(tmp_path, topic, LAKE)
    with monkeypatch.context() as patch:
        patch.setattr(notes, "add", cut)
        with pytest.raises(Cut):
            run(load(file, broker.bootstrap), spark, once=True, tell=print)
    assert letters(broker, topic) == []
    file.write_text(file.read_text().replace("cast(", "try_cast("))
    run(load(file, broker.bootstrap), spark, once=True, tell=print)
    rows = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert sorted(row.id for row in rows) == [0, 1, 2]
    assert letters(broker, topic) == []


def test_a_topic_that_is_made_again_has_other_rows_at_the_offsets_of_those_that_were_set_aside(
    spark: Any, broker: Broker, topic: str, tmp_path: Path
) -> None:
    send(broker, topic, "1", "x", "2", "3", "4", "5")
    file = written(tmp_path, topic, LAKE)
    file.write_text(file.read_text().replace("max_rows", "ignore_loss = true\nmax_rows"))
    run(load(file, broker.bootstrap), spark, once=True, tell=print)
    Admin(broker.bootstrap).delete_topic(topic)
    Admin(broker.bootstrap).create_topic(topic, 2)
    send(broker, topic, "10", "x", "12", "13", first=10)
    run(load(file, broker.bootstrap), spark, once=True, tell=print)
    assert [row for row in lake(spark, tmp_path) if row[0] >= 10] == [(10, 10), (12, 12), (13, 13)]
    assert [key for key, _ in letters(broker, topic)] == [b"k1", b"k11"]


def test_a_search_is_stopped_at_once_and_begun_anew_by_the_next_run(
    spark: Any, broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, topic, *("x" if number == 30 else str(number) for number in range(100)))
    pipeline = load(written(tmp_path, topic, LAKE), broker.bootstrap)
    stop, probes = Stop(), 0
    stepped = bisection.stepped

    def stopped_in_the_middle(*args: Any) -> Any:
        nonlocal probes
        probes += 1
        if probes == 3:
            stop.wish()
        return stepped(*args)

    with monkeypatch.context() as patch:
        patch.setattr(bisection, "stepped", stopped_in_the_middle)
        assert run(pipeline, spark, once=True, tell=print, stop=stop) is False
    assert probes <= 5
    status = read_status(tmp_path / "state")
    assert status is not None
    assert status["outcome"] == "stopped"
    assert run(pipeline, spark, once=True, tell=print) is True
    assert len(lake(spark, tmp_path)) == 99
    assert [key for key, _ in letters(broker, topic)] == [b"k30"]


def test_a_python_process_that_is_late_does_not_end_a_search(
    spark: Any, broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, topic, "1", "x", "2")
    late = [PySparkException(f"boom: {LATE}.")] * 2
    letters_of, stepped = restart.send_letters, bisection.stepped

    def once_late(act: Callable[..., Any]) -> Callable[..., Any]:
        first = [late.pop()]

        def called(*args: Any) -> Any:
            if first:
                raise first.pop()
            return act(*args)

        return called

    monkeypatch.setattr(bisection, "stepped", once_late(stepped))
    monkeypatch.setattr(restart, "send_letters", once_late(letters_of))
    run(load(written(tmp_path, topic, LAKE), broker.bootstrap), spark, once=True, tell=print)
    assert lake(spark, tmp_path) == [(0, 1), (2, 2)]
    assert [key for key, _ in letters(broker, topic)] == [b"k1"]


def test_another_query_goes_on_meanwhile(spark: Any, broker: Broker, topic: str, tmp_path: Path) -> None:
    """In a pipeline that runs until it is stopped, through two rows that one of its sinks fails on."""
    pipeline = load(written(tmp_path, topic, LAKE + IDS), broker.bootstrap)
    stop, said, ends = Stop(), list[str](), list[Any]()

    def go() -> None:
        ends.append(run(pipeline, spark, tell=said.append, stop=stop))

    def there(name: str) -> int:
        files = list((tmp_path / name).glob("*.parquet"))
        return spark.read.parquet(*map(str, files)).count() if files else 0

    def runs() -> dict[str, str]:
        return {str(query.name).partition(":")[2]: str(query.runId) for query in spark.streams.active}

    running = threading.Thread(target=go)
    running.start()
    try:
        wait_for(lambda: any(f"{topic} runs" in line for line in said))
        first = runs()
        for number, amounts in enumerate((("1", "2"), ("3", "x"), ("x", "6"))):
            send(broker, topic, *amounts, first=2 * number)
            wait_for(lambda number=number: there("ids") == 2 * number + 2)
            wait_for(lambda number=number: there("lake") == (2, 3, 4)[number])
        assert runs()["ids"] == first["ids"]
        assert runs()["lake"] != first["lake"]
    finally:
        stop.wish()
        running.join(STOP_S)
    assert ends == [False]
    assert lake(spark, tmp_path) == [(0, 1), (1, 2), (2, 3), (5, 6)]
    assert [key for key, _ in letters(broker, topic)] == [b"k3", b"k4"]
