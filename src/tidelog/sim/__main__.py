"""`python -m tidelog.sim --seed N [--seeds 100]`: run the simulator; a failure says how to repeat it."""

import argparse
import io
import logging
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from tidelog.sim.breaks import SAFEGUARDS, switched_off
from tidelog.sim.cluster.aims import AIMS
from tidelog.sim.replicated.aims import REPLICA_AIMS
from tidelog.sim.safeguard import CLUSTER, QUORUM
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.listed import SCENARIOS, Scenario, make, of_seed

EXAMPLES = """examples:
  python -m tidelog.sim --seeds 100                       the first hundred, one after the other
  python -m tidelog.sim --seed 100 --seeds 900 --jobs 2   the next nine hundred, on two cores
  python -m tidelog.sim --seed 42 --trace                 what happened in one of them
  python -m tidelog.sim --scenario quorum --seeds 200     clusters of whole nodes, which agree on the metadata
  python -m tidelog.sim --scenario cluster --seeds 100    clusters whose topics are replicated
  python -m tidelog.sim --break journal-sync --seeds 100  whether a sync that is left out is found
  python -m tidelog.sim --break vote-fsync --aim vote-fsync --seeds 50
                                                          sooner, with the faults that matter for it
"""
HOUR_S = 3600.0
AHEAD = 4
"""So many seeds a process are handed out before the first of them is done."""


class Choice(NamedTuple):
    """What every seed of a call has in common."""

    scenario: str | None
    broken: str | None
    aim: str | None
    trace: bool

    def of(self, seed: int) -> str:
        """The name of the scenario that it runs."""
        if self.scenario is not None:
            return self.scenario
        if self.broken is not None and (named := SAFEGUARDS[self.broken].scenario) is not None:
            return named
        if self.aim is not None:
            return CLUSTER if self.aim in REPLICA_AIMS else QUORUM
        return of_seed(seed)


class Result(NamedTuple):
    """What a seed came to: `failure` says what went wrong, and how to repeat it; empty: nothing did."""

    seed: int
    acknowledged: int
    virtual_s: float
    faults: Counter[str]
    failure: str
    text: str


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    _be_quiet()
    totals = _Totals()
    seeds = range(options.seed, options.seed + options.seeds)
    choice = Choice(options.scenario, options.broken, options.aim, options.trace)
    until = None if options.minutes is None else time.monotonic() + options.minutes * 60
    for result in _each(partial(_run, choice), seeds, options.jobs, until):
        totals.add(result)
        if result.failure:
            print(result.failure, flush=True)
            if not options.keep_going:
                return 1
        elif options.trace or options.seeds == 1:
            print(result.text)
    totals.tell(seeds)
    return 1 if totals.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tidelog.sim",
        description="A broker, or a cluster, on virtual time, with faults.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at a time, each in a process (default 1)")
    parser.add_argument(
        "--scenario", choices=SCENARIOS, help="this one (default: each seed has its own, those of one broker)"
    )
    parser.add_argument("--minutes", type=float, help="begin no seed after so long; it is told from which to go on")
    parser.add_argument("--keep-going", action="store_true", help="don't end with the first failure")
    parser.add_argument("--break", dest="broken", choices=SAFEGUARDS, help="without this safeguard")
    parser.add_argument(
        "--aim",
        choices=[*AIMS, *REPLICA_AIMS],
        help="with the faults likelier that matter for this safeguard of a cluster",
    )
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    return parser


class _Totals:
    """Of all seeds of a call."""

    def __init__(self) -> None:
        self.failed: list[int] = []
        self._count = 0
        self._acknowledged = 0
        self._virtual_s = 0.0
        self._faults: Counter[str] = Counter()

    def add(self, result: Result) -> None:
        self._count += 1
        self._acknowledged += result.acknowledged
        self._virtual_s += result.virtual_s
        self._faults += result.faults
        if result.failure:
            self.failed.append(result.seed)

    def tell(self, seeds: range) -> None:
        done = seeds[: self._count]
        if len(seeds) > 1 and done:
            fate = f"{len(self.failed)} failed: {self.failed}" if self.failed else "every promise was kept"
            print(
                f"seeds {done[0]} to {done[-1]}: {fate}; {self._acknowledged} records and changes were acknowledged in "
                f"{self._virtual_s / HOUR_S:.2f} virtual hours"
            )
        if len(done) < len(seeds):
            print(f"the time is over: go on with --seed {seeds.start + len(done)} --seeds {len(seeds) - len(done)}")
        print("faults:", ", ".join(f"{kind} {count}" for kind, count in sorted(self._faults.items())) or "none")


def _be_quiet() -> None:
    logging.basicConfig(level=logging.CRITICAL + 1)  # nodes end for their disks here, and nobody has to see to it


def _each(run: "partial[Result]", seeds: Iterable[int], jobs: int, until: float | None) -> Iterator[Result]:
    """In the order of the seeds, so that the first that fails is the same however many run at a time. None is begun
    after `until`, but for the first."""
    if jobs <= 1:
        for number, seed in enumerate(seeds):
            if number and _is_over(until):
                return
            yield run(seed)
        return
    left, begun = iter(seeds), deque[Future[Result]]()
    with ProcessPoolExecutor(jobs, initializer=_be_quiet) as pool:
        try:
            while True:
                while (
                    len(begun) < AHEAD * jobs
                    and not (begun and _is_over(until))
                    and (seed := next(left, None)) is not None
                ):
                    begun.append(pool.submit(run, seed))
                if not begun:
                    return
                yield begun.popleft().result()
                if _is_over(until):
                    left = iter(())
        finally:
            pool.shutdown(cancel_futures=True)


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


def _run(choice: Choice, seed: int) -> Result:
    name = choice.of(seed)
    run = make(name, seed, choice.aim, breaks=choice.broken is not None)
    world = run.world
    try:
        with switched_off(choice.broken):
            outcome = run.go()
    except Exception as error:
        return Result(seed, 0, world.timeline.now, world.faults, _report(run, name, choice, error), "")
    lines = [*world.trace] if choice.trace else []
    lines.append(
        f"seed {seed}: {name}: {outcome.acknowledged} records acknowledged, {outcome.fetched} fetched, "
        f"{outcome.virtual_s:.1f} virtual seconds, {outcome.events} events, trace {outcome.fingerprint}"
    )
    return Result(seed, outcome.acknowledged, outcome.virtual_s, world.faults, "", "\n".join(lines))


def _report(run: Scenario, scenario: str, choice: Choice, error: Exception) -> str:
    text, world = io.StringIO(), run.world
    print(*(world.trace if choice.trace else world.last_events()), sep="\n", file=text)
    if not isinstance(error, Violation):
        traceback.print_exception(error, file=text)
    asked = f" --break {choice.broken}" if choice.broken else ""
    asked += f" --aim {choice.aim}" if choice.aim else ""
    print(f"seed {world.seed} at {world.timeline.now:.6f} virtual seconds: {type(error).__name__}: {error}", file=text)
    print(f"repeat it with: python -m tidelog.sim --seed {world.seed} --scenario {scenario}{asked} --trace", file=text)
    return text.getvalue().rstrip()


if __name__ == "__main__":
    sys.exit(main())
