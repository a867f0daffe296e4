"""Put into every Python process of a Spark by PYTHONPATH: stops the sink where a test wants it to be killed, or late.

`TIDELOG_TEST_STOP` is a JSON object: `step`, the number of the request to a broker, counted from the beginning of a
commit, before which the driver's process stops for good; `marker`, the file that is made then. Or `slow`, a folder: the
first attempt of each batch's first task waits, with everything written, until another attempt has done the same, which
it notes there.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
from typing import Any

STEPS = (
    "init_producer",
    "describe_all",
    "prepare",
    "produce",
    "commit_offsets_in",
    "end_transaction",
    "open_transactions",
    "abort_exactly",
    "commit_exactly",
)
PLAN = json.loads(os.environ.get("TIDELOG_TEST_STOP", "{}"))


def stop_in_commits(decisions: Any) -> None:
    """Count the requests of each commit; stop at the one of the plan."""
    left: list[int] = []
    commit = decisions.Decisions.commit

    def counted(self: Any, *args: Any, **named: Any) -> Any:
        left[:] = [PLAN["step"]]
        try:
            return commit(self, *args, **named)
        finally:
            left.clear()

    def stepping(real: Any) -> Any:
        def step(*args: Any, **named: Any) -> Any:
            if left:
                left[0] -= 1
                if left[0] < 0:
                    open(PLAN["marker"], "w").close()
                    time.sleep(3600)
            return real(*args, **named)

        return step

    decisions.Decisions.commit = counted
    for name in STEPS:
        setattr(decisions, name, stepping(getattr(decisions, name)))


def wait_for_another(sink: Any) -> None:
    """A straggler on purpose: Spark starts a second attempt of a task that takes so much longer than others."""

    class Late(sink.Outbound):  # type: ignore[misc]
        def flush(self) -> None:
            from pyspark import TaskContext

            super().flush()
            context = TaskContext.get()
            if context is None or context.partitionId():
                return
            again = os.path.join(PLAN["slow"], f"stage-{context.stageId()}")
            if context.attemptNumber():
                open(again, "w").close()
            else:
                deadline = time.monotonic() + 20
                while not os.path.exists(again) and time.monotonic() < deadline:
                    time.sleep(0.05)
                time.sleep(1)  # so that the other one wins, and this one is late

    sink.Outbound = Late


class Patching(importlib.abc.MetaPathFinder):
    """Finds these modules as anybody would, and changes them when they were loaded."""

    def __init__(self, patches: dict[str, Any]) -> None:
        self._patches = patches

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        patch = self._patches.get(name)
        if patch is None:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def patched(module: Any) -> None:
            run(module)
            patch(module)

        spec.loader.exec_module = patched
        return spec


if PLAN:
    patch = (
        {"tidelog.spark.sink.data_sink": wait_for_another}
        if "slow" in PLAN
        else {"tidelog.spark.sink.decisions": stop_in_commits}
    )
    sys.meta_path.insert(0, Patching(patch))
