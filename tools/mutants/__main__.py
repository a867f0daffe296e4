"""Changes one thing at a time in a module and runs the tests that speak for it: those that notice kill the mutant.

The work tree is copied, not touched. What is drawn depends on the seed and the module only. A change that makes its
tests hang counts as killed. Exit status: 0, 1 below --at-least, 2 where tests fail without any change.
"""

import argparse
import difflib
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tools.mutants.changes import Change, changes
from tools.mutants.modules import KNOWN, MODULES, Known, Module
from tools.mutants.trees import FAILED, PASSED, TOP, Tree, workshop

EXAMPLES = """
examples:
  make mutants                                                all modules, 12 mutants each
  python -m tools.mutants --list                              the modules and their tests
  python -m tools.mutants --module raft/quorum.py --count 0   every mutant of one module
  python -m tools.mutants --module log/ --seed 7 --jobs 2     another draw of those whose path has log/ in it
  python -m tools.mutants --module log/ --only left-out       what happens where a statement is left out
"""
BASELINE_LIMIT_S = 540.0
POLL_S = 0.02

Task = TypeVar("Task")


@dataclass
class Mutant:
    module: Module
    source: bytes
    """The module as it was when the run began: whoever works on it meanwhile changes nothing here."""
    change: Change
    code: int | None = None
    seconds: float = 0.0

    @property
    def survived(self) -> bool:
        return self.code == PASSED


@dataclass
class Tested:
    """A module with its mutants; `seconds` is what its tests take without a change."""

    module: Module
    mutants: list[Mutant] = field(default_factory=list[Mutant])
    possible: int = 0
    seconds: float = 0.0
    failed: str = ""

    @property
    def survivors(self) -> list[Mutant]:
        return [mutant for mutant in self.mutants if mutant.survived]

    @property
    def run(self) -> list[Mutant]:
        return [mutant for mutant in self.mutants if mutant.code is not None]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    wanted = [module for module in MODULES if not options.module or any(each in module.path for each in options.module)]
    if not wanted:
        print(f"no module is named so: {', '.join(options.module)}; --list shows them", file=sys.stderr)
        return 2
    if options.list:
        for module in wanted:
            print(f"{module.path}\n    {' '.join(module.tests)}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tested = [_drawn(module, options) for module in wanted]
    began = time.monotonic()
    with workshop() as folder:
        print(f"copying the tree for {options.jobs} jobs", flush=True)
        trees = [Tree(folder / str(number)) for number in range(options.jobs)]
        try:
            _run(trees, deque(tested), _start_baseline, _baseline_ended)
            failing = [each for each in tested if each.failed]
            for each in failing:
                print(f"\n{each.module.path}: its tests fail without a change\n{each.failed}")
            if failing:
                return 2
            _run(
                trees, deque((each, mutant) for each in tested for mutant in each.mutants), _start_mutant, _mutant_ended
            )
        finally:
            for tree in trees:
                tree.stop()
    return _tell(tested, options.at_least, time.monotonic() - began)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tools.mutants",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--module", action="append", default=[], help="only modules whose path contains this (repeatable)"
    )
    parser.add_argument("--count", type=int, default=12, help="mutants of each module; 0: all (12)")
    parser.add_argument("--seed", type=int, default=0, help="which of the possible mutants are drawn (0)")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time (2)")
    parser.add_argument("--only", help="only changes of this kind: comparison, and/or, constant, left-out, ...")
    parser.add_argument("--line", action="append", type=int, help="only changes of this line (repeatable)")
    parser.add_argument("--at-least", type=float, default=95.0, help="the score in percent below which it fails (95)")
    parser.add_argument("--list", action="store_true", help="show the modules and their tests, and end")
    options = parser.parse_args(arguments)
    if options.jobs < 1 or options.count < 0:
        parser.error("--jobs is 1 at least, --count not negative")
    return options


def _drawn(module: Module, options: argparse.Namespace) -> Tested:
    source = (TOP / module.file).read_bytes()
    lines = source.decode().splitlines()
    known = [each for each in KNOWN if each.path == module.path]
    used: set[Known] = set()
    possible: list[Change] = []
    for change in changes(source):
        match = next((each for each in known if each.matches(lines, change)), None)
        if match is not None:
            used.add(match)
        elif _is_wanted(change, options):
            possible.append(change)
    for stale in [each for each in known if each not in used]:
        print(f"note: {module.path} has no {stale.line!r} any more; strike it from the known ones", file=sys.stderr)
    random.Random(f"{options.seed} {module.path}").shuffle(possible)
    drawn = sorted(possible[: options.count] if options.count else possible)
    return Tested(module, [Mutant(module, source, change) for change in drawn], len(possible))


def _is_wanted(change: Change, options: argparse.Namespace) -> bool:
    return (options.only is None or options.only.replace("-", " ") == change.kind) and (
        options.line is None or change.line in options.line
    )


def _run(
    trees: Sequence[Tree],
    waiting: deque[Task],
    start: Callable[[Tree, Task], None],
    ended: Callable[[Tree, Task, int, float], None],
) -> None:
    running: dict[Tree, Task] = {}
    while waiting or running:
        for tree in trees:
            if tree in running and (end := tree.ended()) is not None:
                ended(tree, running.pop(tree), *end)
            if tree not in running and waiting:
                running[tree] = waiting.popleft()
                start(tree, running[tree])
        time.sleep(POLL_S)


def _start_baseline(tree: Tree, tested: Tested) -> None:
    tree.start(tested.module.tests, BASELINE_LIMIT_S, BASELINE_LIMIT_S)


def _baseline_ended(tree: Tree, tested: Tested, code: int, seconds: float) -> None:
    tested.seconds = seconds
    if code != PASSED:
        tested.failed = tree.output()
    print(
        f"{tested.module.path}: {len(tested.mutants)} of {tested.possible} mutants, tests take {seconds:.1f} s",
        flush=True,
    )


def _start_mutant(tree: Tree, task: tuple[Tested, Mutant]) -> None:
    tested, mutant = task
    # Generous, since a busy machine must not kill mutants.
    limit_s = 60 + 4 * tested.seconds
    changed = mutant.change.apply(mutant.source)
    tree.start(mutant.module.tests, limit_s, 20 + 2 * tested.seconds, changed=(mutant.module.file, changed))


def _mutant_ended(tree: Tree, task: tuple[Tested, Mutant], code: int, seconds: float) -> None:
    tested, mutant = task
    mutant.code, mutant.seconds = code, seconds
    if mutant.survived:
        print(f"\n{_difference(mutant)}", flush=True)
    elif code > FAILED and tested.module.path not in tree.output():
        # A module that can't be imported any more is noticed; that pytest itself fails otherwise should be seen.
        print(f"note: pytest ended with {code} for {mutant.module.file}:{mutant.change.line}", file=sys.stderr)
    if all(each.code is not None for each in tested.mutants):
        print(_row(tested), flush=True)


def _difference(mutant: Mutant) -> str:
    before = mutant.source
    after = mutant.change.apply(before)
    path = mutant.module.file
    lines = difflib.unified_diff(
        before.decode().splitlines(), after.decode().splitlines(), path, f"{path} ({mutant.change.kind})", "", "", 2, ""
    )
    return f"survived: {path}:{mutant.change.line} ({mutant.change.kind})\n" + "\n".join(list(lines)[2:])


def _row(tested: Tested) -> str:
    count, survived = len(tested.run), len(tested.survivors)
    killed, seconds = count - survived, sum(mutant.seconds for mutant in tested.run)
    score = _percent(killed, count)
    return f"{tested.module.path:<44} killed {killed:>3} of {count:>3}  {score:>6}  {seconds:>5.0f} s"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def _tell(tested: Sequence[Tested], at_least: float, seconds: float) -> int:
    count = sum(len(each.run) for each in tested)
    killed = count - sum(len(each.survivors) for each in tested)
    print(f"\nby module, in {seconds:.0f} s:")
    for each in tested:
        print(_row(each))
    print(f"score: {killed} of {count} killed, {_percent(killed, count)} (at least {at_least:g}%)")
    for each in tested:
        for mutant in each.survivors:
            print(f"  survived: {mutant.module.file}:{mutant.change.line} ({mutant.change.kind})")
    return 0 if 100 * killed >= at_least * count else 1


if __name__ == "__main__":
    sys.exit(main())
