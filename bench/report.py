"""The results as a table for people, as JSON for programs, and as a Markdown table for the README."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.brokers import FLOOR, KAFKA, TIDELOG
from bench.case import Metrics
from bench.run import CaseResult
from bench.spark_stage import CONNECTOR
from bench.targets import TARGETS, Medians

HEADINGS = {FLOOR: "C floor", TIDELOG: "Tidelog", KAFKA: "Apache Kafka", CONNECTOR: "Spark's connector"}

# Metric -> its words in a table, in the order in which they stand there.
WORDS = {
    "cpu_us_per_request": "CPU us a request",
    "cpu_s_per_gb": "CPU s a GB",
    "cpu_s_per_million": "CPU s a million",
    "cpu_us_per_message": "CPU us a message",
    "messages_per_s": "messages/s",
    "small_per_s": "messages/s of 100 B",
    "rows_per_s": "rows/s",
    "seconds": "seconds",
    "requests_per_s": "requests/s",
    "mb_per_s": "MB/s",
    "first_s": "first record to each acknowledged, s",
    "ack_beside_p99_us": "another client's ack p99 meanwhile, us",
    "ack_p50_us": "ack p50, us",
    "ack_p99_us": "ack p99, us",
    "ack_p999_us": "ack p99.9, us",
    "ack_alone_p99_us": "ack p99 without the writer, us",
    "writer_mb_per_s": "the writer's MB/s",
    "ack_read_p50_us": "ack p50 while they are read, us",
    "ack_read_p99_us": "ack p99 while they are read, us",
    "ack_raw_p50_us": "ack p50 of a raw client, us",
    "ack_raw_p99_us": "ack p99 of a raw client, us",
    "client_cpu_us": "CPU us a message of the client",
    "end_p50_us": "end to end p50, us",
    "end_p99_us": "end to end p99, us",
    "end_p999_us": "end to end p99.9, us",
    "create_s": "created, s",
    "shown_s": "shown by every node, s",
    "requests": "requests for it",
    "idle_percent": "an idle node then, % of a core",
    "gone_s": "other leaders shown by all others, s",
    "fenced_s": "of that from the end of its session, s",
    "change_alone_p50_ms": "a change p50, ms",
    "change_alone_p99_ms": "a change p99, ms",
    "change_beside_p50_ms": "a change p50 beside a producer, ms",
    "change_beside_p99_ms": "a change p99 beside a producer, ms",
    "loaded_mb_per_s": "the producer's MB/s",
    "served_s": "client served after, s",
    "start_s": "start, s",
    "stop_s": "stop, s",
    "restart_s": "restart, s",
    "restart_and_metadata_s": "restart and all its metadata, s",
    "memory_mb": "memory, MB",
    "memory_restarted_mb": "memory after the restart, MB",
    "open_files": "open files",
    "loaded_mb": "MB acknowledged",
    "acked_mb": "MB acknowledged, as batches",
    "given_per_byte": "bytes the process wrote, a byte of them",
    "pages_per_byte": "bytes of its pages, a byte of them",
    "device_per_byte": "bytes the device wrote, a byte of them",
    "read_all_s": "all partitions read after, s",
    "left_percent": "bytes left, %",
    "of_idempotent": "of the throughput without transactions",
    "transactions_per_s": "transactions/s",
    "commit_p50_us": "commit p50, us",
    "commit_p99_us": "commit p99, us",
    "commit_to_ack": "commit p99 to ack p99",
    "settle_s": "settled, s",
    "generations": "generations",
    "cpu_s": "CPU s",
    "memory_for_groups_mb": "memory for the groups, MB",
    "first_ms": "first message, ms",
    "first_max_ms": "first message at worst, ms",
    "others_share": "the others' throughput, of what was written",
    "latency_ms": "record to result, ms",
    "latency_max_ms": "record to result at worst, ms",
    "trigger_ms": "of it the micro-batch, ms",
    "planning_ms": "of that planning, ms",
    "log_ms": "of that Spark's log, ms",
    "running_ms": "of that tasks and the sink's commit, ms",
    "commit_ms": "of that Spark's commit, ms",
    "worker_200mb_mb": "memory of a worker, partition of 0.2 GB, MB",
    "worker_2000mb_mb": "memory of a worker, partition of 2 GB, MB",
    "memory_growth": "the one to the other",
    "others_pause_ms": "the others' longest pause, ms",
    "turn_ms": "longest turn of the loop, CPU ms",
    "ping_ms": "worst answer to another client, ms",
    "peak_mb": "peak memory, MB",
    "kept": "of its rate a steady producer kept",
    "session_left": "sessions left for others",
    "attack_s": "took, s",
}

# The figures that stand in the README: case -> metrics.
SUMMARY = {
    "produce-100b-8p": ("cpu_s_per_gb", "messages_per_s"),
    "produce-1kb-8p": ("cpu_s_per_gb", "mb_per_s"),
    "produce-one-raw": ("cpu_us_per_request", "requests_per_s"),
    "produce-16kb-raw": ("cpu_us_per_request",),
    "consume-1kb-8p": ("cpu_s_per_gb", "mb_per_s"),
    "latency": ("ack_p50_us", "ack_p99_us", "end_p99_us"),
    "fsync-1p": ("ack_p50_us", "ack_p99_us", "messages_per_s"),
    "fsync-1000p": ("ack_p50_us", "ack_p99_us", "messages_per_s"),
    "fsync-10000p": ("first_s", "ack_beside_p99_us", "ack_p50_us", "ack_p99_us"),
    "fsync-writer": ("ack_p99_us",),
    "fsync-bytes-small": ("device_per_byte",),
    "fsync-bytes-1mb": ("device_per_byte",),
    "fsync-stop-10000p": ("stop_s",),
    "fsync-kill-10000p": ("served_s", "read_all_s"),
    "transactions-each-100": ("messages_per_s",),
    "transactions-each-1000": ("messages_per_s",),
    "transactions-each-10000": ("messages_per_s",),
    "transactions-each-100ms": ("messages_per_s", "of_idempotent"),
    "spark-read-100b-batch": ("rows_per_s", "cpu_s_per_million"),
    "spark-read-100b-now": ("rows_per_s", "cpu_s_per_million"),
    "spark-read-1kb-batch": ("rows_per_s", "cpu_s_per_million"),
    "spark-read-1kb-now": ("rows_per_s", "cpu_s_per_million"),
    "spark-write-100b": ("rows_per_s", "cpu_s_per_million"),
    "spark-latency": ("latency_ms",),
    "spark-audit": ("seconds", "rows_per_s"),
    "start": ("start_s",),
    "memory": ("memory_mb",),
    "kill": ("served_s",),
    "partitions-10k": ("create_s", "restart_s"),
    "partitions-100k": ("restart_s", "memory_restarted_mb"),
    "metadata-create": ("shown_s", "idle_percent"),
    "metadata-create-1000": ("shown_s", "idle_percent"),
    "metadata-fence-kill": ("gone_s", "fenced_s", "turn_ms"),
    "metadata-commit": ("change_alone_p99_ms", "change_beside_p99_ms"),
}


def medians_of(results: Sequence[CaseResult]) -> Medians:
    return {result.case.name: result.medians() for result in results}


def print_tables(console: Console, results: Sequence[CaseResult]) -> None:
    """Every figure of every case, then each target with what was measured."""
    shown = _shown(medians_of(results))
    table = Table("case", "median of", *shown.values(), title="What was measured", title_justify="left")
    for column in table.columns[2:]:
        column.justify = "right"
    for result in results:
        medians, title = result.medians(), result.case.title
        for metric, words in WORDS.items():
            if any(metric in found for found in medians.values()):
                cells = [figure(medians.get(name, {}).get(metric)) for name in shown]
                table.add_row(title, words, *cells)
                title = ""
        table.add_section()
    console.print(table)
    _print_rounds(console, results)
    _print_targets(console, medians_of(results))
    for result in results:
        if result.case.note and KAFKA in shown:
            console.print(f"{result.case.name}: {result.case.note}", highlight=False)
    for result in results:
        for name, why in result.failures.items():
            console.print(f"[bold red]no figure[/] {result.case.name}, {name}: {why}", highlight=False)


def _print_rounds(console: Console, results: Sequence[CaseResult]) -> None:
    """What each round came to, where a case wants it shown."""
    table = Table("case", "each round of", "", "", title="Rounds", title_justify="left")
    table.columns[3].justify = "right"
    for result in results:
        title = result.case.title if result.case.each_round else ""
        for name, rounds in result.rounds.items() if result.case.each_round else ():
            for metric, words in WORDS.items():
                if metric in rounds[0]:
                    figures = "  ".join(figure(each.get(metric)) for each in rounds)
                    table.add_row(title, words, HEADINGS[name], figures)
                    title = ""
        table.add_section()
    if table.row_count:
        console.print(table)


def _shown(medians: Medians) -> dict[str, str]:
    """The columns that have a figure in this run."""
    there = {name for brokers in medians.values() for name in brokers}
    return {name: words for name, words in HEADINGS.items() if name in there}


def _print_targets(console: Console, medians: Medians) -> None:
    table = Table("target", "", "measured", "", title="Targets", title_justify="left")
    met = missed = 0
    for target in TARGETS:
        value = target.measure(medians)
        if value is None:
            continue
        good = target.met(value)
        met, missed = met + good, missed + (not good)
        unit = "x" if target.is_ratio else ""
        table.add_row(
            target.case, target.says, f"{figure(value)}{unit}", "[green]met[/]" if good else "[bold red]missed[/]"
        )
    console.print(table)
    left = len(TARGETS) - met - missed
    console.print(f"{met} met, {missed} missed, {left} without a figure in this run.", highlight=False)


def markdown(medians: Medians, titles: Mapping[str, str]) -> str:
    """The summary as a Markdown table."""
    shown = _shown(medians)
    rows = [f"| | {' | '.join(shown.values())} |", "|---|" + "---:|" * len(shown)]
    for case, metrics in SUMMARY.items():
        found = medians.get(case, {})
        used = [metric for metric in metrics if metric in found.get(TIDELOG, {})]
        if not used:
            continue
        label = f"{titles[case]}: {' / '.join(WORDS[metric] for metric in used)}"
        cells = [
            " / ".join(figure(found[name].get(metric)) for metric in used) if name in found else "" for name in shown
        ]
        rows.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(rows)


def stalls_markdown(medians: Medians, titles: Mapping[str, str]) -> str:
    """The stalls as a Markdown table, a row each; a turn without a figure was too short for the broker to tell of."""
    metrics = ("turn_ms", "ping_ms", "peak_mb", "kept")
    rows = [f"| | {' | '.join(WORDS[metric] for metric in metrics)} |", "|---|" + "---:|" * len(metrics)]
    for case, title in titles.items():
        found = medians.get(case, {}).get(TIDELOG)
        if case.startswith("stalls-") and found:
            rows.append(f"| {title} | {' | '.join(figure(found.get(metric)) for metric in metrics)} |")
    return "\n".join(rows)


def write_json(path: Path, results: Sequence[CaseResult], run: Mapping[str, object]) -> None:
    medians = medians_of(results)
    cases = {
        result.case.name: {
            "title": result.case.title,
            "seconds": round(result.seconds, 1),
            "medians": _plain(medians[result.case.name]),
            "rounds": {name: [_finite(each) for each in rounds] for name, rounds in result.rounds.items()},
            "failures": result.failures,
        }
        for result in results
    }
    targets = [
        {
            "case": target.case,
            "target": target.says,
            "limit": target.limit,
            "measured": _number(value),
            "met": target.met(value),
        }
        for target in TARGETS
        if (value := target.measure(medians)) is not None
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**run, "cases": cases, "targets": targets}, indent=2) + "\n")


def figure(value: float | None) -> str:
    """Three digits that matter, thousands grouped."""
    if value is None:
        return ""
    if math.isnan(value):
        return "-"
    if not math.isfinite(value):
        return "never"
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _plain(brokers: Mapping[str, Metrics]) -> dict[str, dict[str, float | None]]:
    return {name: _finite(metrics) for name, metrics in brokers.items()}


def _finite(metrics: Metrics) -> dict[str, float | None]:
    return {name: _number(value) for name, value in metrics.items()}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
