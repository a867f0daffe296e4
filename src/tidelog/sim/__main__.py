"""`python -m tidelog.sim --seed N [--seeds 100]`: run the simulator; a failure says how to repeat it."""

import argparse
import io
import logging
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from tidelog.sim.breaks import SAFEGUARDS, switched_off
from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.listed import SCENARIOS, make, of_seed
from tidelog.sim.world.world import World

EXAMPLES = """examples:
  python -m tidelog.sim --seeds 100                       the first hundred, one after the other
  python -m tidelog.sim --seed 100 --seeds 900 --jobs 2   the next nine hundred, on two cores
  python -m tidelog.sim --seed 42 --trace                 what happened in one of them
  python -m tidelog.sim --break journal-sync --seeds 100  whether a sync that is left out is found
"""


class Result(NamedTuple):
    """What a seed came to: `failure` says what went wrong, and how to repeat it; empty: nothing did."""

    seed: int
    acknowledged: int
    faults: Counter[str]
    failure: str
    text: str


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tidelog.sim",
        description="A broker on virtual time, with faults.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at a time, each in a process (default 1)")
    parser.add_argument("--scenario", choices=SCENARIOS, help="this one (default: each seed has its own)")
    parser.add_argument("--break", dest="broken", choices=SAFEGUARDS, help="without this safeguard")
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    options = parser.parse_args(arguments)
    _be_quiet()
    acknowledged = 0
    faults: Counter[str] = Counter()
    seeds = range(options.seed, options.seed + options.seeds)
    run = partial(_run, scenario=options.scenario, broken=options.broken, trace=options.trace)
    for result in _each(run, seeds, options.jobs):
        faults += result.faults
        acknowledged += result.acknowledged
        if result.failure:
            print(result.failure)
            return 1
        if options.trace or options.seeds == 1:
            print(result.text)
    if options.seeds > 1:
        print(f"seeds {seeds[0]} to {seeds[-1]}: every promise was kept; {acknowledged} records were acknowledged")
    print("faults:", ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())) or "none")
    return 0


def _be_quiet() -> None:
    logging.basicConfig(level=logging.CRITICAL)


def _each(run: "partial[Result]", seeds: Iterable[int], jobs: int) -> Iterator[Result]:
    """In the order of the seeds, so that the first that fails is the same however many run at a time."""
    if jobs <= 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs, initializer=_be_quiet) as pool:
        try:
            yield from pool.map(run, seeds)
        finally:
            pool.shutdown(cancel_futures=True)


def _run(seed: int, *, scenario: str | None, broken: str | None, trace: bool) -> Result:
    name = scenario or of_seed(seed)
    run = make(name, seed)
    try:
        with switched_off(broken):
            outcome = run.go()
    except Exception as error:
        return Result(seed, 0, run.world.faults, _report(run.world, name, broken, error, trace=trace), "")
    lines = [*run.world.trace] if trace else []
    lines.append(
        f"seed {seed}: {name}: {outcome.acknowledged} records acknowledged, {outcome.fetched} fetched, "
        f"{outcome.virtual_s:.1f} virtual seconds, {outcome.events} events, trace {outcome.fingerprint}"
    )
    return Result(seed, outcome.acknowledged, run.world.faults, "", "\n".join(lines))


def _report(world: World, scenario: str, broken: str | None, error: Exception, *, trace: bool) -> str:
    text = io.StringIO()
    print(*(world.trace if trace else world.trace[-20:]), sep="\n", file=text)
    if not isinstance(error, Violation):
        traceback.print_exception(error, file=text)
    without = f" --break {broken}" if broken else ""
    print(f"seed {world.seed} at {world.timeline.now:.6f} virtual seconds: {type(error).__name__}: {error}", file=text)
    print(
        f"repeat it with: python -m tidelog.sim --seed {world.seed} --scenario {scenario}{without} --trace", file=text
    )
    return text.getvalue().rstrip()


if __name__ == "__main__":
    sys.exit(main())
