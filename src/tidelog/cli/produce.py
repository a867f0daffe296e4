"""`tidelog produce`: lines of a file or of standard input become records."""

import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import click

from tidelog.cli.failure import Failure, pairs
from tidelog.cli.options import bootstrap_option, json_option, topic_names
from tidelog.cli.produce_lines import Line, Reader
from tidelog.cli.record_text import Headers
from tidelog.cli.show import human_bytes, show_json

if TYPE_CHECKING:
    from tidelog.client import Producer

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
PROGRESS_EVERY_BYTES = 256 * 1024
TIMEOUT_S = 30.0  # a broker that went away may come back, but a person waits no longer


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--file", "-f", "path", type=click.Path(dir_okay=False), help="Read this file, not standard input.")
@click.option("--input", "input_format", type=click.Choice(["lines", "json"]), default="lines", show_default=True,
              help="What a line holds: a value, or a JSON object as `consume --json` writes it.")  # fmt: skip
@click.option("--key", metavar="KEY", help="A key for every record.")
@click.option("--key-separator", "-k", metavar="TEXT", help="What stands between key and value in a line.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="A header for every record.")
@click.option(
    "--partition",
    "-p",
    type=click.IntRange(0),
    metavar="N",
    help="Write to this partition; by key or in turn otherwise.",
)
@click.option("--null", "null_text", metavar="TEXT", help="Keys and values that read TEXT become null.")
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True,
              help="What to wait for: safe in all replicas, written by the leader, nothing.")  # fmt: skip
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.1, 86_400), default=TIMEOUT_S, show_default=True,
              metavar="SECONDS", help="How long to go on trying to have a record acknowledged.")  # fmt: skip
@bootstrap_option
@json_option
def produce(
    topic: str,
    path: str | None,
    input_format: Literal["lines", "json"],
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    null_text: str | None,
    compression: str,
    acks: str,
    timeout_s: float,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Write records: one for each line of standard input or a file.

    However it ends, it says how many records were acknowledged and, where one was not, which line and why. With
    --acks all each is written once, also where a broker dies or an answer is lost.

    \b
    Examples:
      echo hello | tidelog produce greetings
      echo "logged in" | tidelog produce events --key alice
      echo "alice:logged in" | tidelog produce events --key-separator :
      tidelog produce events --file events.txt --compression zstd --header source=import
      tidelog consume events --json --exit | tidelog produce copy --input json
    """
    from tidelog.client import Producer
    from tidelog.client.limits import batch_bytes

    if key is not None and (key_separator is not None or input_format == "json"):
        raise click.UsageError("--key is for every record: it can't be with --key-separator or --input json")
    every: Headers = [(name, value.encode()) for name, value in pairs(headers, "--header").items()]
    reader = Reader(key, key_separator, null_text, every, -1 if partition is None else partition)
    read_line = reader.json_line if input_format == "json" else reader.plain_line
    if path is None and sys.stdin.isatty():
        click.echo("One record a line; Ctrl-D ends.", err=True)
    source = open(path, "rb") if path else nullcontext(sys.stdin.buffer)  # noqa: SIM115 - closed by the `with` below
    with source as file, _Progress(path) as progress, _interruptible() as interruption:
        producer = Producer(
            bootstrap,
            acks=acks,
            compression_type=compression,
            message_timeout_ms=round(timeout_s * 1000),
            batch_size=batch_bytes(bootstrap, topic),
        )
        writing = _Writing(producer, topic, interruption)
        failure = writing.run(cast(BinaryIO, file), read_line, progress)
    writing.tell(failure, as_json)


@dataclass(slots=True)
class _Interruption:
    """SIGINT and SIGTERM end what waits for input; elsewhere they are noted, so that every answer is counted."""

    reading: bool = False
    by: signal.Signals = signal.SIGINT
    times: int = 0

    def note(self, number: int, frame: FrameType | None) -> None:
        self.by = signal.Signals(number)
        self.times += 1
        if self.reading:
            raise KeyboardInterrupt


@contextmanager
def _interruptible() -> Generator[_Interruption]:
    interruption = _Interruption()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, interruption.note) for number in numbers]
    try:
        yield interruption
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _Writing:
    """Lines on their way to a topic, until they end, or one fails, or someone ends it."""

    def __init__(self, producer: "Producer", topic: str, interruption: _Interruption) -> None:
        self._producer = producer
        self._topic = topic
        self._interruption = interruption
        self._line = 0

    def run(self, file: BinaryIO, read_line: Callable[[bytes, int], Line], progress: "_Progress") -> Failure | None:
        """Send what the file holds and wait for the answers; why it ended before its end."""
        from tidelog.client import ClientError

        failure: Failure | None = None
        try:
            self._send(file, read_line, progress)
        except Failure as error:
            failure = error
        except KeyboardInterrupt:
            failure = self._stopped()
        except OSError as error:
            failure = Failure(f"cannot read on after line {self._line:,}: {error.strerror}")
        except ClientError:
            pass  # told with its line, below
        self._settle()
        failed = self._producer.failed
        if failed is None:
            return failure or (self._stopped() if self._producer.unanswered else None)
        why = cast(ClientError, self._producer.failure())
        done = "acknowledged" if self._producer.unanswered else "written"
        self._line = failed
        return Failure(f"line {failed:,} was not {done}: {why.message}", why.hint)

    def _stopped(self) -> Failure:
        by = self._interruption.by
        return Failure(f"stopped by {by.name} after line {self._line:,}", exit_code=128 + by)

    def _send(self, file: BinaryIO, read_line: Callable[[bytes, int], Line], progress: "_Progress") -> None:
        interruption, producer, topic = self._interruption, self._producer, self._topic
        while not interruption.times:
            interruption.reading = True
            raw = file.readline()
            interruption.reading = False
            if not raw:
                return
            line = read_line(raw.rstrip(b"\r\n"), self._line + 1)
            self._line += 1
            producer.send(
                topic,
                line.value,
                key=line.key,
                headers=line.headers,
                partition=line.partition,
                timestamp_ms=line.timestamp_ms,
                number=self._line,
            )
            progress.advance(len(raw))
        raise KeyboardInterrupt

    def _settle(self) -> None:
        """Wait for the answers that are missing: each comes, or its time runs out. A second Ctrl-C ends that."""
        hinted = False
        begun = time.monotonic()
        times = self._interruption.times
        self._interruption.reading = False
        while left := self._producer.wait(0.2):
            if self._interruption.times > max(times, 1):
                break
            if self._interruption.times and not hinted and time.monotonic() - begun > 1.0:
                hinted = True
                click.echo(f"Waiting for {left:,} to be acknowledged; Ctrl-C again ends that.", err=True)
        self._producer.give_up()

    def tell(self, failure: Failure | None, as_json: bool) -> None:
        """How many records were acknowledged, and what of the others."""
        producer = self._producer
        figures = {"topic": self._topic, "records": producer.written, "bytes": producer.written_bytes,
                "last_offsets": producer.last_offsets}  # fmt: skip
        if failure is None:
            if as_json:
                show_json(figures)
                return
            records = "1 record" if producer.written == 1 else f"{producer.written:,} records"
            click.echo(f"Wrote {records} ({human_bytes(producer.written_bytes)}) to {self._topic}.", err=True)
            return
        if as_json:
            show_json({**figures, "line": self._stopped_at(), "error": failure.message})
        summary = _acknowledged(producer.written)
        if producer.unanswered:
            summary += f"; {producer.unanswered:,} that {_was(producer.unanswered)} sent may be written or not"
        failure.hint = f"{failure.hint}\n       {summary}" if failure.hint else summary
        raise failure

    def _stopped_at(self) -> int:
        """The first line that isn't acknowledged."""
        return self._line + 1 if self._producer.first_unwritten is None else self._producer.first_unwritten


def _acknowledged(count: int) -> str:
    return f"{f'{count:,}' if count else 'no'} record{'' if count < 2 else 's'} {_was(count)} acknowledged"


def _was(count: int) -> str:
    return "were" if count > 1 else "was"


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
