"""The C programs of the benchmarks, compiled into build/bench when their source is newer."""

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent
BUILT = SOURCES.parent / "build" / "bench"
FLOOR_LINES_MAX = 200


class BenchError(Exception):
    """The benchmark can't go on; the message says what it would take."""


@dataclass(frozen=True, slots=True)
class Programs:
    floor: Path
    load_raw: Path
    load_rdkafka: Path
    load_transactions: Path


def compile_programs() -> Programs:
    """All of them, or a BenchError that says what is missing."""
    library = find_librdkafka()
    lines = len((SOURCES / "floor.c").read_text().splitlines())
    if lines > FLOOR_LINES_MAX:
        raise BenchError(f"floor.c has {lines} lines: it is a floor only while it has {FLOOR_LINES_MAX} at most")
    BUILT.mkdir(parents=True, exist_ok=True)
    rdkafka = [str(library), f"-Wl,-rpath,{library.parent}", "-lpthread"]
    return Programs(
        floor=_compile("floor", ["-msse4.2", "-mpclmul"]),
        load_raw=_compile("load_raw", []),
        load_rdkafka=_compile("load_rdkafka", rdkafka),
        load_transactions=_compile("load_transactions", rdkafka),
    )


def find_librdkafka() -> Path:
    """The library that came inside confluent-kafka's wheel: what Python programs use is what is measured."""
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise BenchError("confluent-kafka isn't installed: run `make setup`")
    folder = Path(spec.origin).resolve().parent.parent / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka*.so*"))
    if not found:
        raise BenchError(f"no librdkafka in {folder}: install confluent-kafka as a wheel, not from source")
    return found[0]


def _compile(name: str, options: list[str]) -> Path:
    source, program = SOURCES / f"{name}.c", BUILT / name
    newest = max(source.stat().st_mtime, (SOURCES / "rdkafka.h").stat().st_mtime)
    if program.exists() and program.stat().st_mtime > newest:
        return program
    compiler = next((path for path in map(shutil.which, ("cc", "gcc", "clang")) if path), None)
    if compiler is None:
        raise BenchError("the load and the floor are C programs: install a compiler (Debian: gcc libc6-dev)")
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(source), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{source.name} does not compile:\n{done.stderr}")
    return program
