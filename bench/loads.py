"""Running a load program against a broker: what it reported, and what the broker's process spent meanwhile."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.brokers import Broker, Topic
from bench.process import cpu_s
from bench.programs import BenchError, Programs
from bench.requests import RawRequest

LOAD_TIMEOUT_S = 150.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the program printed, and the CPU seconds of the broker while it ran."""

    report: dict[str, float]
    broker_cpu_s: float

    def __getitem__(self, name: str) -> float:
        return self.report[name]


class At(Protocol):
    """A broker that a load in the background is told of."""

    @property
    def at(self) -> str: ...


class Loads:
    def __init__(self, programs: Programs, work: Path) -> None:
        self._programs = programs
        self._work = work

    def rdkafka(self, what: str, broker: Broker, topic: Topic, **options: object) -> Outcome:
        arguments = [f"at={broker.at}", f"topic={topic.name}", *(f"{name}={value}" for name, value in options.items())]
        outcome = self._run([str(self._programs.load_rdkafka), what, *arguments], broker)
        if outcome["failed"] or outcome["missing"] or outcome.report["error"]:
            raise BenchError(f"{what} on {broker.name}: {outcome.report}")
        return outcome

    def transactions(self, broker: Broker, topic: Topic, **options: object) -> Outcome:
        arguments = [f"at={broker.at}", f"topic={topic.name}", *(f"{name}={value}" for name, value in options.items())]
        outcome = self._run([str(self._programs.load_transactions), *arguments], broker)
        if outcome["failed"] or not outcome["messages"]:
            raise BenchError(f"transactions on {broker.name}: {outcome.report}")
        return outcome

    def start_rdkafka(self, what: str, broker: At, topic: Topic, **options: object) -> "subprocess.Popen[str]":
        """Start it in the background; `finish` it later."""
        arguments = [f"at={broker.at}", f"topic={topic.name}", *(f"{name}={value}" for name, value in options.items())]
        command = [str(self._programs.load_rdkafka), what, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process: "subprocess.Popen[str]") -> dict[str, float]:
        out, errors = process.communicate(timeout=LOAD_TIMEOUT_S)
        return _parse(out, errors, "load_rdkafka")

    def raw(self, broker: Broker, request: RawRequest, **options: object) -> Outcome:
        path = self._work / "request"
        path.write_bytes(request.frame)
        positions = [f"error_at={request.error_at}", f"offset_at={request.offset_at}"]
        positions.append(f"partition_at={request.partition_at}")
        arguments = [*positions, *(f"{name}={value}" for name, value in options.items())]
        outcome = self._run([str(self._programs.load_raw), str(broker.port), str(path), *arguments], broker)
        if outcome["error"]:
            raise BenchError(f"{broker.name} answered a raw request with error {outcome['error']}")
        return outcome

    def _run(self, command: list[str], broker: Broker) -> Outcome:
        before = cpu_s(broker.pid)
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S)
        spent = cpu_s(broker.pid) - before
        if done.returncode:
            raise BenchError(f"load on {broker.name} failed: {done.stderr.strip()}")
        return Outcome(_parse(done.stdout, done.stderr, command[0]), spent)


def _parse(out: str, errors: str, program: str) -> dict[str, float]:
    try:
        return json.loads(out)
    except ValueError:
        raise BenchError(f"{program} said: {out.strip()} {errors.strip()}") from None
