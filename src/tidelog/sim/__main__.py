"""`python -m tidelog.sim --seed N [--seeds 100]`: run the simulator; a failure says how to repeat it."""

import argparse
import logging
import sys
import traceback
from collections import Counter

from tidelog.sim.scenarios.checkers import Violation
from tidelog.sim.scenarios.listed import SCENARIOS, make, of_seed
from tidelog.sim.world.world import World


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tidelog.sim", description="A broker on virtual time, with faults.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other (default 1)")
    parser.add_argument("--scenario", choices=SCENARIOS, help="this one (default: each seed has its own)")
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.CRITICAL)
    acknowledged = 0
    faults: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.seeds):
        scenario = options.scenario or of_seed(seed)
        run = make(scenario, seed)
        try:
            outcome = run.go()
        except Exception as error:
            _report(run.world, scenario, error, trace=options.trace)
            return 1
        faults += run.world.faults
        acknowledged += outcome.acknowledged
        if options.trace:
            print(*run.world.trace, sep="\n")
        if options.seeds == 1:
            print(
                f"seed {seed}: {scenario}: {outcome.acknowledged} records acknowledged, {outcome.fetched} fetched, "
                f"{outcome.virtual_s:.1f} virtual seconds, {outcome.events} events, trace {outcome.fingerprint}"
            )
    if options.seeds > 1:
        last = options.seed + options.seeds - 1
        print(f"seeds {options.seed} to {last}: every promise was kept; {acknowledged} records were acknowledged")
    print("faults:", ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())) or "none")
    return 0


def _report(world: World, scenario: str, error: Exception, *, trace: bool) -> None:
    print(*(world.trace if trace else world.trace[-20:]), sep="\n")
    if not isinstance(error, Violation):
        traceback.print_exception(error, file=sys.stdout)
    print(f"seed {world.seed} at {world.timeline.now:.6f} virtual seconds: {type(error).__name__}: {error}")
    print(f"repeat it with: python -m tidelog.sim --seed {world.seed} --scenario {scenario} --trace")


if __name__ == "__main__":
    sys.exit(main())
