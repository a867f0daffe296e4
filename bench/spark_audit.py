"""The audit at size: pipelines/audit.toml over a topic of 50 million rows, its verdict checked."""

import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.brokers import Broker
from bench.case import Metrics
from bench.process import cpu_s, descendants, memory_bytes
from bench.programs import BenchError
from bench.spark_load import KEYS, fill_sequences
from bench.spark_meter import Meter

FILE = Path(__file__).parents[1] / "pipelines" / "audit.toml"
PARTITIONS = 4
TIMEOUT_S = 1200.0
LOOK_S = 0.2
TELL_S = 10.0


def audit(broker: Broker, rows: int, work: Path) -> tuple[Metrics, float]:
    """What it took; and the CPU of it that Linux tells nobody of ours."""
    folder = work / "audit"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE.name
    file.write_text(FILE.read_text())
    broker.create_topic("audited", PARTITIONS)
    try:
        fill_sequences(broker.at, "audited", rows, Told())
        seconds, spent, memory, lost = _run(broker, file)
    finally:
        broker.delete_topic("audited")
    _check(folder, rows)
    found = {"seconds": seconds, "rows_per_s": rows / seconds, "cpu_s_per_million": spent / (rows / 1e6)}
    return {**found, "memory_mb": memory / 1e6}, lost


def _run(broker: Broker, file: Path) -> tuple[float, float, int, float]:
    """Seconds, CPU of it and the broker, the most memory that its processes had, and CPU that nobody was told of."""
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(file), "--once", "--master", "local[2]"]
    before, began, memory = cpu_s(broker.pid), time.monotonic(), 0
    with open(file.with_suffix(".out"), "ab") as output:
        running = subprocess.Popen([*command, "-b", broker.at], cwd=file.parent, stdout=output, stderr=output)
    tell, meter = Told(), Meter(running.pid)
    try:
        while running.poll() is None:
            memory, spent = max(memory, memory_bytes(running.pid)), meter.look()
            seconds = time.monotonic() - began
            tell(f"{seconds:.0f} s, {spent:.0f} s of CPU, {memory / 1e6:.0f} MB")
            if seconds > TIMEOUT_S:
                raise BenchError(f"the audit took longer than {TIMEOUT_S:.0f} s")
            threading.Event().wait(LOOK_S)
    finally:
        _end(running)
    seconds = time.monotonic() - began
    if running.returncode:
        raise BenchError(f"the audit failed:\n{file.with_suffix('.out').read_text()[-1000:]}")
    return seconds, meter.total_s + cpu_s(broker.pid) - before, memory, meter.lost_s()


def _end(running: "subprocess.Popen[bytes]") -> None:
    if running.poll() is None:
        for pid in descendants(running.pid):
            subprocess.run(["kill", str(pid)], check=False)
        running.kill()
        running.wait()


def _check(folder: Path, rows: int) -> None:
    """The verdict must be that the topic is whole, with every row."""
    import pyarrow.parquet

    [found] = pyarrow.parquet.read_table(folder / "lake" / "audit").to_pylist()
    expected = {"records": rows, "keys": min(rows, KEYS), "gaps": 0, "missing": 0, "duplicates": 0, "out_of_order": 0}
    wrong = {name: found[name] for name, value in expected.items() if found[name] != value}
    if wrong or not found["whole"]:
        raise BenchError(f"the audit's verdict is wrong: {found}")


class Told:
    """A line now and then, for who waits."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._last > TELL_S:
            self._last = time.monotonic()
            print(f"         audit: {text}", file=sys.stderr, flush=True)
