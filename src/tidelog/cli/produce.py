"""`tidelog produce`: lines of a file or of standard input become records."""

import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, cast

import click

from tidelog.cli.failure import Failure, pairs
from tidelog.cli.options import bootstrap_option, json_option, topic_names
from tidelog.cli.record_text import Headers, bytes_from_json, headers_from_json
from tidelog.cli.show import human_bytes, show_json

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
PROGRESS_EVERY_BYTES = 256 * 1024
GIVE_UP_MS = 30_000  # a broker that went away may come back, but a person waits no longer


@dataclass(frozen=True, slots=True)
class Line:
    """What one line asks to be written."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = -1
    timestamp_ms: int = 0


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--file", "-f", "path", type=click.Path(dir_okay=False), help="Read this file, not standard input.")
@click.option("--input", "input_format", type=click.Choice(["lines", "json"]), default="lines", show_default=True,
              help="What a line holds: a value, or a JSON object as `consume --json` writes it.")  # fmt: skip
@click.option("--key-separator", "-k", metavar="TEXT", help="What stands between key and value in a line.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="A header for every record.")
@click.option(
    "--partition",
    "-p",
    type=click.IntRange(0),
    metavar="N",
    help="Write to this partition; by key or in turn otherwise.",
)
@click.option("--null", "null_text", metavar="TEXT", help="Lines (or values) that read TEXT become null.")
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True,
              help="What to wait for: safe in all replicas, written by the leader, nothing.")  # fmt: skip
@bootstrap_option
@json_option
def produce(
    topic: str,
    path: str | None,
    input_format: Literal["lines", "json"],
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    null_text: str | None,
    compression: str,
    acks: str,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Write records: one for each line of standard input or a file.

    \b
    Examples:
      echo hello | tidelog produce greetings
      echo "alice:logged in" | tidelog produce events --key-separator :
      tidelog produce events --file events.txt --compression zstd --header source=import
      tidelog consume events --json --exit | tidelog produce copy --input json
    """
    from tidelog.client import Producer

    every: Headers = [(name, value.encode()) for name, value in pairs(headers, "--header").items()]
    reader = _Reader(key_separator, null_text, every, -1 if partition is None else partition)
    read_line = reader.json_line if input_format == "json" else reader.plain_line
    if path is None and sys.stdin.isatty():
        click.echo("One record a line; Ctrl-D ends.", err=True)
    source = open(path, "rb") if path else nullcontext(sys.stdin.buffer)  # noqa: SIM115 - closed by the `with` below
    producer = Producer(bootstrap, acks=acks, compression_type=compression, message_timeout_ms=GIVE_UP_MS)
    with source as file, producer, _Progress(path) as progress:
        for number, raw in enumerate(cast(BinaryIO, file), 1):
            line = read_line(raw.rstrip(b"\r\n"), number)
            producer.send(
                topic,
                line.value,
                key=line.key,
                headers=line.headers,
                partition=line.partition,
                timestamp_ms=line.timestamp_ms,
            )
            progress.advance(len(raw))
    if as_json:
        show_json({"topic": topic, "records": producer.written, "bytes": producer.written_bytes,
                   "last_offsets": producer.last_offsets})  # fmt: skip
    else:
        records = "1 record" if producer.written == 1 else f"{producer.written:,} records"
        click.echo(f"Wrote {records} ({human_bytes(producer.written_bytes)}) to {topic}.", err=True)


class _Reader:
    """Turns lines into records."""

    def __init__(self, separator: str | None, null_text: str | None, headers: Headers, partition: int) -> None:
        self._separator = separator.encode() if separator else None
        self._null = null_text.encode() if null_text is not None else None
        self._headers = headers
        self._partition = partition

    def plain_line(self, line: bytes, number: int) -> Line:
        key: bytes | None = None
        value: bytes | None = line
        if self._separator is not None:
            key, found, value = line.partition(self._separator)
            if not found:
                text = self._separator.decode()
                raise Failure(
                    f"line {number} has no key separator {text!r}", "every line needs one: KEY" + text + "VALUE"
                )
        if self._null is not None:
            key, value = (None if part == self._null else part for part in (key, value))
        return Line(key, value, self._headers, self._partition)

    def json_line(self, line: bytes, number: int) -> Line:
        try:
            given: dict[str, Any] = json.loads(line)
            return Line(
                bytes_from_json("key", given),
                bytes_from_json("value", given),
                headers_from_json(given.get("headers")) + self._headers,
                self._partition,
                int(given.get("timestamp") or 0),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(
                f"line {number} is no record in JSON: {error}",
                'expected an object such as {"key": "alice", "value": "logged in", "headers": {"source": "web"}}',
            ) from None


class _Progress:
    """A bar on stderr while a file is read, where a person watches; nothing otherwise."""

    def __init__(self, path: str | None) -> None:
        self._bar: Any = None
        if path is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(f"Writing {os.path.basename(path)}", total=os.path.getsize(path) or None)
        self._context: AbstractContextManager[Any] = self._bar or nullcontext()
        self._unseen = 0

    def __enter__(self) -> "_Progress":
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def advance(self, count: int) -> None:
        self._unseen += count
        if self._bar is not None and self._unseen > PROGRESS_EVERY_BYTES:
            self._bar.advance(self._task, self._unseen)
            self._unseen = 0
