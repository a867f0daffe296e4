"""`tidelog consume`: records of topics as text, from any place, to the end or for ever."""

import json
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.consume_waits import Waits, waits_for
from tidelog.cli.failure import forget_output
from tidelog.cli.options import bootstrap_option, start_of, topic_names
from tidelog.cli.record_format import compile_format
from tidelog.cli.record_text import bytes_to_json, headers_to_json, printable
from tidelog.cli.show import human_time

if TYPE_CHECKING:
    from tidelog.client import Message


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=topic_names)
@click.option("--from", "-o", "start", metavar="WHERE",
              help="beginning (or earliest), end (or latest), an offset (42), the last of each partition (-10), a time "
              "ago (15m, 2h, 1d) or a time (2026-01-31T12:00).  [default: beginning]")  # fmt: skip
@click.option("--group", "-g", metavar="NAME",
              help="Join this consumer group: go on where it stopped, commit what was shown.")  # fmt: skip
@click.option("--count", "-n", type=click.IntRange(1), metavar="N", help="Stop after this many records.")
@click.option("--exit", "-e", "stop_at_end", is_flag=True, help="Stop at the end, don't wait for new records.")
@click.option("--partition", "-p", "partitions", type=click.IntRange(0), metavar="N", multiple=True,
              help="Only these; all otherwise.")  # fmt: skip
@click.option("--uncommitted", is_flag=True, help="Also records of transactions that are open or were aborted.")
@click.option("--key", "-k", "with_key", is_flag=True, help="Show keys.")
@click.option("--headers", "-H", "with_headers", is_flag=True, help="Show headers.")
@click.option("--place", "-l", "with_place", is_flag=True, help="Show time, partition and offset.")
@click.option("--format", "-f", "template", metavar="TEMPLATE",
              help="How to write a record: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp, "
              "%h headers, %K and %S lengths, \\n \\t; or json.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with everything there is.")
@bootstrap_option
def consume(
    topics: tuple[str, ...],
    start: str | None,
    group: str | None,
    count: int | None,
    stop_at_end: bool,
    partitions: tuple[int, ...],
    uncommitted: bool,
    with_key: bool,
    with_headers: bool,
    with_place: bool,
    template: str | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Read records and print them, one a line; waits for new ones until Ctrl-C.

    \b
    Examples:
      tidelog consume greetings                          # everything, then what comes
      tidelog consume greetings farewells --from latest  # only what comes
      tidelog consume greetings --from -10 --exit        # the last ten of each partition
      tidelog consume greetings --from 15m --key         # since a quarter of an hour ago
      tidelog consume greetings --group billing          # as a member of the group
      tidelog consume greetings --format '%t-%p@%o %k: %s\\n'
      tidelog consume greetings --from 42 --partition 0 --count 1 --json
    """
    if template is not None and (as_json or with_key or with_headers or with_place):
        raise click.UsageError("--format says all that is shown: it can't be with --json, --key, --headers or --place")
    write = _writer(template, as_json, _text_line(with_key, with_headers, with_place))
    stop = _Stop()
    waits = Waits(bootstrap, topics, partitions, at_end=stop_at_end, committed_only=not uncommitted)
    messages = _messages(
        bootstrap,
        topics,
        start,
        group,
        list(partitions),
        count=count,
        stop_at_end=stop_at_end,
        idle=lambda: (stop.check(), waits.idle()),
        offline=waits.offline,
        isolation_level="read_uncommitted" if uncommitted else "read_committed",
    )
    with _until_stopped(stop):
        shown = _show(messages, write, stop, flush_each=not stop_at_end or group is not None)
        waits.ended(by_count=shown == count)


def _messages(
    bootstrap: str, topics: Sequence[str], start: str | None, group: str | None, partitions: list[int], **more: Any
) -> "Generator[Message]":
    from tidelog.client import read
    from tidelog.client.member import read_as_member

    place = start_of("beginning" if start is None else start, "--from")
    if group is None:
        return read(bootstrap, topics, start=place, partitions=partitions or None, **more)
    if partitions or place.kind not in ("beginning", "end"):
        raise click.UsageError(
            "--group goes on where the group stopped, in the partitions it is given: it can't be with --partition, and "
            "--from is earliest or latest, for partitions without a commit"
        )
    reset = "earliest" if place.kind == "beginning" else "latest"
    return read_as_member(bootstrap, topics, group, reset=reset, waits=waits_for, **more)


class _Stop:
    """Ctrl-C and SIGTERM: what was shown is first counted as consumed; the second time it ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def check(self) -> None:
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def _until_stopped(stop: _Stop) -> Generator[None]:
    """Ctrl-C, SIGTERM and a reader that is gone (`| head`) end it, and that is no failure."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop.ask) for number in numbers]
    try:
        yield
        sys.stdout.flush()
    except (KeyboardInterrupt, BrokenPipeError):
        _flush()
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _flush() -> None:
    """What is left goes out, or nowhere where nobody reads it: then Python must not try again at its end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        forget_output()


def _show(messages: "Generator[Message]", write: "Callable[[Message], str]", stop: _Stop, *, flush_each: bool) -> int:
    """How many there were."""
    out, shown = sys.stdout, 0
    with closing(messages):
        for message in messages:
            stop.check()
            out.write(write(message))
            shown += 1
            if flush_each:
                out.flush()
    return shown


def _writer(template: str | None, as_json: bool, plain: "Callable[[Message], str]") -> "Callable[[Message], str]":
    if as_json or template == "json":
        return _json_line
    if template is None:
        return plain
    try:
        return compile_format(template)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None


def _json_line(message: "Message") -> str:
    plain = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        "timestamp_type": message.timestamp_type,
        **bytes_to_json("key", message.key),
        **bytes_to_json("value", message.value),
        "headers": headers_to_json(message.headers),
    }
    return json.dumps(plain, ensure_ascii=False) + "\n"


def _text_line(with_key: bool, with_headers: bool, with_place: bool) -> "Callable[[Message], str]":
    """A line for people: the value, after a tab each for what else was asked for."""

    def line(message: "Message") -> str:
        parts: list[str] = []
        if with_place:
            parts.append(f"{human_time(message.timestamp_ms)} {message.partition}@{message.offset}")
        if with_headers:
            parts.append(",".join(f"{name}={printable(value)}" for name, value in message.headers) or "-")
        if with_key:
            parts.append(printable(message.key))
        parts.append(printable(message.value))
        return "\t".join(parts) + "\n"

    return line
