"""Put into every Python process of a Spark by PYTHONPATH: stops the sink where a test wants it to be killed.

`TIDELOG_TEST_STOP` is a JSON object: `step`, the number of the request to a broker, counted from the beginning of a
commit, before which the driver's process stops for good; `marker`, the file that is made then.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
from typing import Any

STEPS = ("init_producer", "produce", "commit_offsets_in", "end_transaction", "open_transactions", "abort_exactly")
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
    sys.meta_path.insert(0, Patching({"tidelog.spark.decisions": stop_in_commits}))
