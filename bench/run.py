"""One run: every case in interleaved rounds on its brokers, within a bound of time; then medians."""

import math
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from bench import (
    compaction,
    fsync,
    fsync_bytes,
    fsync_life,
    groups,
    latency,
    life,
    metadata,
    spark,
    stalls,
    throughput,
    transactions,
)
from bench.case import Bench, Case, Metrics
from bench.programs import BenchError
from tidelog.wire.errors import KafkaError

BROKER_CASES = (
    *throughput.CASES,
    *latency.CASES,
    *fsync.CASES,
    *fsync_bytes.CASES,
    *fsync_life.CASES,
    *life.CASES,
    *compaction.CASES,
    *transactions.CASES,
    *groups.CASES,
    *stalls.CASES,
    *metadata.CASES,
)
CASES = (*BROKER_CASES, *spark.CASES)

LEFT_OUT = "left out: the time was up"
FAILURE_CHARACTERS = 1000

Progress = Callable[[str], None]


@dataclass(slots=True)
class CaseResult:
    case: Case
    rounds: dict[str, list[Metrics]] = field(default_factory=dict)
    """Broker -> its measured rounds, the warming one left out."""
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def medians(self) -> dict[str, Metrics]:
        return {name: _medians(rounds) for name, rounds in self.rounds.items() if rounds}


def run_cases(
    bench: Bench, cases: Sequence[Case], names: Sequence[str], rounds: int, deadline: float, progress: Progress
) -> list[CaseResult]:
    """Each case in turn; what would begin after `deadline` (monotonic) is left out and says so."""
    results: list[CaseResult] = []
    for index, case in enumerate(cases):
        result = CaseResult(case)
        results.append(result)
        began = time.monotonic()
        brokers = [name for name in case.brokers if name in names]
        total = (case.rounds or rounds) + case.warm
        for turn in range(total):
            for name in brokers[turn % len(brokers) :] + brokers[: turn % len(brokers)]:
                if name in result.failures or turn >= case.rounds_of(name, rounds) + case.warm:
                    continue
                if time.monotonic() > deadline:
                    result.failures[name] = LEFT_OUT
                    continue
                what = "warming" if case.warm and not turn else f"round {turn + 1 - case.warm} of {total - case.warm}"
                progress(f"[{index + 1}/{len(cases)}] {case.title}: {what}, {name}")
                _run_round(bench, result, name, counts=turn >= case.warm)
        result.seconds = time.monotonic() - began
    return results


def _run_round(bench: Bench, result: CaseResult, name: str, *, counts: bool) -> None:
    try:
        metrics = result.case.run(bench, name)
    except (BenchError, KafkaError, KafkaException, subprocess.TimeoutExpired, TimeoutError, OSError) as error:
        result.failures[name] = str(error).strip()[-FAILURE_CHARACTERS:]
        return
    if counts:
        result.rounds.setdefault(name, []).append(metrics)


def _medians(rounds: list[Metrics]) -> Metrics:
    found = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    return {name: value for name, value in found.items() if not math.isnan(value)}
