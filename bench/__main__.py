"""`python -m bench`: choose, run, report."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from tests.kafka.jars import KAFKA_VERSION, JarsMissingError, find_jars

from bench import spark
from bench.brokers import FLOOR, KAFKA, TIDELOG
from bench.case import Bench, Case
from bench.machine import OtherWork, describe, disk_sync_us, file_system, touch_memory
from bench.programs import BUILT, BenchError, compile_programs, find_librdkafka
from bench.report import markdown, medians_of, print_tables, stalls_markdown, write_json
from bench.run import BROKER_CASES, CASES, LEFT_OUT, run_cases
from bench.spark_stage import CONNECTOR

RESULTS = Path(__file__).parent / "results"
QUICK_SCALE = 0.25
PLAIN_WIDTH = 120
OTHER_WORK_MAX = 0.05


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    if options.list:
        for case in CASES:
            console.print(f"{case.name:22} {case.title}", highlight=False)
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that brokers are ended then too
    try:
        return _run(options, console)
    except BenchError as error:
        console.print(f"[bold red]bench:[/] {error}", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("stopped; nothing was written")
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Tidelog beside a C floor and, where it can be had, Apache Kafka."
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="cases whose name begins so; may be repeated")
    parser.add_argument("--rounds", type=int, metavar="N", help="measured rounds of each case, after a warming one (3)")
    parser.add_argument(
        "--quick", action="store_true", help="one round with a quarter of the load: a look, not a figure"
    )
    parser.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    parser.add_argument("--no-floor", action="store_true", help="leave the floor out")
    parser.add_argument("--minutes", type=float, default=35, help="begin no broker's case after so long (35)")
    parser.add_argument("--spark-minutes", type=float, default=20, help="nor one of Spark's after so much more (20)")
    parser.add_argument("--dir", type=Path, help="where the brokers keep their data (build/bench)")
    parser.add_argument(
        "--setting", metavar="NAME=VALUE", action="append", default=[], help="of every Tidelog; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    return parser.parse_args()


def _run(options: argparse.Namespace, console: Console) -> int:
    began, others = time.monotonic(), OtherWork()
    cases = _chosen(options.only)
    settings = _settings(options.setting)
    sparks = _sparks(cases, console)
    jars = _jars(options, console)
    names = [TIDELOG] + [FLOOR] * (not options.no_floor) + [KAFKA] * (jars is not None)
    names += [CONNECTOR] * (bool(sparks) and _has_connector(console))
    programs = compile_programs()
    folder = options.dir or BUILT
    folder.mkdir(parents=True, exist_ok=True)
    if file_system(folder) == "tmpfs":
        console.print("[yellow]The data lies in memory (tmpfs): figures with fsync mean nothing here; see --dir.[/]")
    work = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    bench = Bench(programs, work, jars, QUICK_SCALE if options.quick else 1.0, settings)
    rounds = options.rounds or (1 if options.quick else 3)
    try:
        with console.status("touching memory") as status:

            def progress(text: str) -> None:
                elapsed = time.monotonic() - began
                status.update(f"{elapsed // 60:02.0f}:{elapsed % 60:02.0f} {text}")
                if not console.is_terminal:
                    print(f"{elapsed:5.0f} s  {text}", file=sys.stderr, flush=True)

            touch_memory()
            sync_p50, sync_p99 = disk_sync_us(work)
            brokers = [case for case in cases if case in BROKER_CASES]
            results = run_cases(bench, brokers, names, rounds, began + options.minutes * 60, progress)
            deadline = time.monotonic() + options.spark_minutes * 60
            results += run_cases(bench, sparks, names, rounds, deadline, progress)
    finally:
        bench.end()
        shutil.rmtree(work, ignore_errors=True)
    other_work = others.share(spark.lost_s(bench))
    print_tables(console, results)
    console.print(
        f"The disk: 1 KB appended and fdatasync, p50 {sync_p50:.0f} us, p99 {sync_p99:.0f} us.", highlight=False
    )
    if other_work > OTHER_WORK_MAX:
        console.print(
            f"[yellow]Others used {other_work:.0%} of the machine meanwhile: latencies and throughput mean little.[/]",
            highlight=False,
        )
    titles = {case.name: case.title for case in CASES}
    for table in (markdown(medians_of(results), titles), stalls_markdown(medians_of(results), titles)):
        if table.count("\n") > 1:  # more than its head
            console.print("\n" + table, highlight=False, soft_wrap=True)
    about = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe(folder),
        "disk_sync_us": {"p50": sync_p50, "p99": sync_p99},
        "librdkafka": find_librdkafka().name,
        "kafka": KAFKA_VERSION if jars else None,
        "other_work": round(other_work, 3),
        "rounds": rounds,
        "scale": bench.scale,
        "settings": settings,
        "seconds": round(time.monotonic() - began),
    }
    path = RESULTS / f"{datetime.now():%Y-%m-%d-%H%M%S}.json"
    write_json(path, results, about)
    console.print(f"\n{time.monotonic() - began:.0f} s; every round is in {path}", highlight=False)
    return 1 if any(result.failures.get(TIDELOG, LEFT_OUT) != LEFT_OUT for result in results) else 0


def _chosen(only: list[str] | None) -> list[Case]:
    chosen = [case for case in CASES if not only or any(case.name.startswith(name) for name in only)]
    if not chosen:
        raise BenchError(
            f"no case is called {', '.join(only or ())}; there are: {', '.join(case.name for case in CASES)}"
        )
    return chosen


def _settings(given: list[str]) -> dict[str, str]:
    for each in given:
        if "=" not in each:
            raise BenchError(f"--setting {each}: say NAME=VALUE")
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def _sparks(cases: list[Case], console: Console) -> list[Case]:
    """Those of Spark's cases that are chosen and can run."""
    chosen = [case for case in cases if case in spark.CASES]
    why = spark.missing() if chosen else None
    if why is None:
        return chosen
    console.print(f"[yellow]Without Spark: {why}[/]", highlight=False)
    return []


def _has_connector(console: Console) -> bool:
    why = spark.missing_connector()
    if why is not None:
        console.print(f"[yellow]Without Spark's own connector: {why}[/]", highlight=False)
    return why is None


def _jars(options: argparse.Namespace, console: Console) -> Path | None:
    if options.no_kafka:
        return None
    try:
        return find_jars()
    except JarsMissingError as error:
        console.print(f"[yellow]Without Apache Kafka: {error}[/]", highlight=False)
        return None


if __name__ == "__main__":
    sys.exit(main())
