"""Compiled where that is possible, plain Python where not, and it says which."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("librt", reason="needs pip install tidelog[spark]")

from tidelog.spark import native, walk

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


def test_a_cache_that_others_may_write_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TIDELOG_NATIVE", "require")
    native._folder(native.FOLDER / "walk.py").chmod(0o777)
    with pytest.raises(native.NotCompiled, match="can be written by others"):
        fresh("walk")
