"""A Tidelog of one's own for each story."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import Tidelog


@pytest.fixture
def tidelog(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path / "data") as broker:
        yield broker
