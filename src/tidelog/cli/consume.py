"""`tidelog consume`: records of a topic as text, from any place, to the end or for ever."""

import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from tidelog.cli.options import bootstrap_option, topic_names
from tidelog.cli.record_text import bytes_to_json, headers_to_json, printable
from tidelog.cli.show import human_time

if TYPE_CHECKING:
    from tidelog.client import Message


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--from", "-o", "start", default="beginning", show_default=True, metavar="WHERE",
              help="beginning, end, an offset (42), the last of each partition (-10), a time ago (15m, 2h, 1d) or "
              "a time (2026-01-31T12:00).")  # fmt: skip
@click.option("--count", "-n", type=click.IntRange(1), metavar="N", help="Stop after this many records.")
@click.option("--exit", "-e", "stop_at_end", is_flag=True, help="Stop at the end, don't wait for new records.")
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(0),
    metavar="N",
    multiple=True,
    help="Only these; all otherwise.",
)
@click.option("--key", "-k", "with_key", is_flag=True, help="Show keys.")
@click.option("--headers", "-H", "with_headers", is_flag=True, help="Show headers.")
@click.option("--place", "-l", "with_place", is_flag=True, help="Show time, partition and offset.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with everything there is.")
@bootstrap_option
def consume(
    topic: str,
    start: str,
    count: int | None,
    stop_at_end: bool,
    partitions: tuple[int, ...],
    with_key: bool,
    with_headers: bool,
    with_place: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Read records and print them, one a line; waits for new ones until Ctrl-C.

    \b
    Examples:
      tidelog consume greetings                          # everything, then what comes
      tidelog consume greetings --from end               # only what comes
      tidelog consume greetings --from -10 --exit        # the last ten of each partition
      tidelog consume greetings --from 15m --key         # since a quarter of an hour ago
      tidelog consume greetings --from 42 --partition 0 --count 1 --json
    """
    from tidelog.client import Start, read

    try:
        place = Start.parse(start, datetime.now().astimezone())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from None
    write = _json_line if as_json else _text_line(with_key, with_headers, with_place)
    out = sys.stdout
    try:
        for message in read(
            bootstrap, topic, start=place, partitions=list(partitions) or None, count=count, stop_at_end=stop_at_end
        ):
            out.write(write(message))
            if not stop_at_end:
                out.flush()
        out.flush()
    except KeyboardInterrupt:
        out.flush()


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
