"""`tidelog log`: what stands in the files of a data folder, in words."""

import json
import os
from collections.abc import Iterator
from typing import Any

import click

from tidelog.cli.dump import Entry, dump_file
from tidelog.cli.failure import Failure
from tidelog.cli.options import json_option
from tidelog.cli.show import human_bytes, human_time


@click.group()
def log() -> None:
    """Look into the files of a data folder.

    \b
    Examples:
      tidelog log dump data/greetings-0
      tidelog log dump data/greetings-0/00000000000000000000.log --records
    """


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True), metavar="PATH...")
@click.option("--records", "-r", "with_records", is_flag=True, help="Also the records inside the batches.")
@json_option
def dump(paths: tuple[str, ...], with_records: bool, as_json: bool) -> None:
    """Show segments, indexes, snapshots, checkpoints, journals and the metadata log in words.

    PATH is a file, or a folder, whose files are all shown. Checksums are looked at; a damaged file makes the exit code
    1. A running broker is not disturbed.

    \b
    Examples:
      tidelog log dump data/greetings-0
      tidelog log dump data/greetings-0/00000000000000000000.log --records
      tidelog log dump data/__cluster_metadata-0 --records
      tidelog log dump data/meta.properties data/recovery-point-offset-checkpoint
    """
    damaged: list[str] = []
    for path in _files(paths):
        contents = dump_file(path, with_records=with_records)
        if contents is None:
            if path in paths:
                raise Failure(
                    f"{path} is no file of a data folder",
                    "expected a segment, an index, a snapshot, a checkpoint or a journal",
                )
            continue
        kind, entries = contents
        if not as_json:
            click.secho(path, bold=True, nl=False)
            click.echo(f"  {kind}, {human_bytes(os.path.getsize(path))}")
        for entry in _guarded(entries):
            if "problem" in entry:
                damaged.append(path)
            click.echo(json.dumps({"file": path, "kind": kind, **entry}) if as_json else "  " + words(entry))
    if damaged:
        are = "is" if len(set(damaged)) == 1 else "are"
        raise Failure(f"{len(set(damaged))} of the files {are} damaged: {', '.join(sorted(set(damaged)))}")


def _files(paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        if os.path.isdir(path):
            yield from (file.path for file in sorted(os.scandir(path), key=lambda file: file.name) if file.is_file())
        else:
            yield path


def _guarded(entries: Iterator[Entry]) -> Iterator[Entry]:
    """The entries; an exception of a reader becomes the last one, so that the other files are still shown."""
    try:
        yield from entries
    except Exception as error:
        yield {"problem": str(error) or type(error).__name__}


def words(entry: Entry) -> str:
    """An entry as a line: batches and records in a form of their own, the rest as name and value."""
    if "problem" in entry:
        where = " ".join(f"{name} {value}" for name, value in entry.items() if name != "problem")
        return f"DAMAGED {where}: {entry['problem']}"
    if "base_offset" in entry:
        return _batch(entry)
    indent = "    " if "offset" in entry and len(entry) > 3 else ""
    return indent + ", ".join(f"{name.replace('_', ' ')} {_value(name, value)}" for name, value in entry.items())


def _batch(entry: Entry) -> str:
    parts = [
        f"offsets {entry['base_offset']} to {entry['last_offset']}",
        "1 record" if entry["records"] == 1 else f"{entry['records']} records",
        f"{entry['bytes']} bytes at {entry['position']}",
        f"epoch {entry['leader_epoch']}",
        f"{entry['timestamp_type']} time {human_time(entry['max_timestamp'])}",
    ]
    if entry["compression"] != "none":
        parts.append(entry["compression"])
    if "producer_id" in entry:
        parts.append(
            f"producer {entry['producer_id']} epoch {entry['producer_epoch']} "
            f"sequences {entry['base_sequence']} to {entry['last_sequence']}"
        )
    parts += [flag for flag in ("transactional", "control") if flag in entry]
    return ", ".join(parts)


def _value(name: str, value: Any) -> str:
    if name in ("timestamp", "last_timestamp") and isinstance(value, int):
        return human_time(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
