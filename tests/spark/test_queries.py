"""A query that fails since a Python process was late goes on from its checkpoint; any other failure stands."""

from collections.abc import Callable, Iterator

import pytest

from tidelog.spark.pipeline.run import queries
from tidelog.spark.pipeline.run.queries import LATE, TRIES, Queries


class Query:
    """What is asked of Spark's: how it ended, and whether it came to a batch."""

    def __init__(self, failure: str | None, batches: int = 0) -> None:
        self._failure = failure
        self.lastProgress = {"batchId": batches} if batches else None
        self.isActive = failure is None
        self.status = {"message": "Processing new data"}
        self.stopped = False

    def exception(self) -> Exception | None:
        return None if self._failure is None else RuntimeError(self._failure)

    def stop(self) -> None:
        self.stopped = True


def beginning(*made: Query) -> Callable[[], Query]:
    left: Iterator[Query] = iter(made)
    return lambda: next(left)


def test_a_late_python_process_is_given_another_try() -> None:
    lines: list[str] = []
    running = Queries(lines.append)
    well = Query(None)
    running.start("lake", beginning(Query(f"boom: {LATE}."), well))
    assert running.mend() == []
    assert running.by_name == {"lake": well}
    assert lines == ["lake: a Python process was late to come up; going on from the checkpoint"]
    running.stop()
    assert well.stopped


def test_another_failure_stands() -> None:
    running = Queries(print)
    failed = Query("the topic vanished")
    running.start("lake", beginning(failed))
    assert running.mend() == ["lake"]
    assert running.by_name == {"lake": failed}


def test_it_is_not_tried_for_ever() -> None:
    running = Queries(lambda text: None)
    stuck = [Query(LATE) for _ in range(TRIES + 1)]
    running.start("lake", beginning(*stuck))
    assert [running.mend() for _ in range(TRIES + 1)] == [[]] * TRIES + [["lake"]]
    assert running.by_name["lake"] is stuck[-1]


def test_it_is_tried_for_as_long_as_it_comes_on() -> None:
    running = Queries(lambda text: None)
    slow = [Query(LATE, batches=1) for _ in range(3 * TRIES)]
    running.start("lake", beginning(*slow))
    assert [running.mend() for _ in range(3 * TRIES - 1)] == [[]] * (3 * TRIES - 1)


def test_a_start_that_fails_by_itself_is_tried_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "PAUSE_S", 0.0)
    well = Query(None)
    left = [well, OSError(LATE), OSError(LATE)]

    def begin() -> Query:
        got = left.pop()
        if isinstance(got, Exception):
            raise got
        return got

    running = Queries(lambda text: None)
    running.start("lake", begin)
    assert running.by_name == {"lake": well}
    left += [OSError("the disk is full")]
    with pytest.raises(OSError, match="the disk is full"):
        running.start("lake", begin)
    left += [OSError(LATE) for _ in range(TRIES)]
    with pytest.raises(RuntimeError, match=f"lake: {LATE} {TRIES} times"):
        running.start("lake", begin)
