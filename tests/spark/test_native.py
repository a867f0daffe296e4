"""Compiled where that is possible, plain Python where not, and it says which."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs pip install tidelog[spark]")
pytest.importorskip("librt", reason="needs pip install tidelog[spark]")

import pyarrow

from tidelog.spark import native
from tidelog.spark.source import walk
from tidelog.spark.source.columns import Decoder, Range
from tidelog.wire.batch import HEADER_BYTES, build, seal
from tidelog.wire.errors import KafkaError
from tidelog.wire.record import Record

arrow: Any = pyarrow
pair = st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8))
record = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.integers(-(2**62), 2**62),
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(pair, max_size=3).map(tuple),
)
fresh: Any = native.loaded.__wrapped__  # without what was loaded before


def test_plain_python_is_used_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_NATIVE", "off")
    assert fresh("walk") == (walk, False)


def test_without_a_compiler_it_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("TIDELOG_NATIVE", "auto")
    assert fresh("walk") == (walk, False)
    assert "using plain Python, which is about 15 times slower: there is no C compiler" in caplog.text
    monkeypatch.setenv("TIDELOG_NATIVE", "require")
    with pytest.raises(native.NotCompiled, match="TIDELOG_NATIVE=require, but there is no C compiler"):
        fresh("walk")


def test_a_home_that_can_not_be_written_to_is_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # not even root makes a folder in a file
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("TIDELOG_NATIVE", "require")
    with pytest.raises(native.NotCompiled, match="there is no C compiler"):
        fresh("walk")
    folder = tmp_path / f"tidelog-{os.getuid()}"
    assert [each.is_dir() for each in folder.iterdir()] == [True], "where it would have been"
    folder.chmod(0o777)
    with pytest.raises(native.NotCompiled, match="can be written by others"):
        fresh("walk")


def test_what_was_compiled_for_another_librt_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(name: str) -> Any:
        raise ValueError("ABI version conflict for librt.strings, expected 1, found 2")

    monkeypatch.setenv("TIDELOG_NATIVE", "auto")
    monkeypatch.setattr(native, "_compiled", other)
    assert fresh("walk") == (walk, False)


def test_a_cache_that_others_may_write_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TIDELOG_NATIVE", "require")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(native.NotCompiled, match="there is no C compiler"):
        fresh("walk")
    [folder] = (tmp_path / "tidelog" / "native").iterdir()
    folder.chmod(0o777)
    with pytest.raises(native.NotCompiled, match="can be written by others"):
        fresh("walk")


@given(
    st.lists(st.lists(record, min_size=1, max_size=8), min_size=1, max_size=4),
    st.integers(0, 4),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3),
)
@settings(max_examples=100)
def test_compiled_and_plain_make_the_same_bytes_and_the_same_errors(
    batches: list[list[Record]], codec: int, headers: bool, flips: list[tuple[int, int]]
) -> None:
    if not native.walker()[1]:
        pytest.skip("no compiled decoder here: it needs a C compiler and mypy")
    built = bytearray()
    for batch in batches:
        made = build(batch, base_offset=len(built), compression=codec)
        for at, value in flips if not codec else ():
            made[HEADER_BYTES + at % (len(made) - HEADER_BYTES)] = value
        seal(made, 0, len(made))
        built += made
    outcomes: list[Any] = []
    for module in (native.walker()[0], walk):
        with patch("tidelog.spark.source.columns.walker", Mock(return_value=(module, True))):
            decoder = Decoder(Range("orders", 3, 0, 1 << 60), headers=headers)
        try:
            outcomes.append([arrow_bytes(each) for each in decoder.feed(memoryview(built))])
        except KafkaError as error:
            outcomes.append((error.code, str(error)))
    assert outcomes[0] == outcomes[1]


def arrow_bytes(batch: Any) -> bytes:
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
