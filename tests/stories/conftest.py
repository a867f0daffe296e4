"""A Tidelog of one's own for each story."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import Tidelog
from tests.stories.groups.band import QUICK_GROUPS


@pytest.fixture
def tidelog(tmp_path: Path) -> Iterator[Tidelog]:
    with Tidelog(tmp_path / "data") as broker:
        yield broker


@pytest.fixture(scope="session")
def groups_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose groups notice absence soon; COMPAT_BOOTSTRAP names another, such as an Apache Kafka."""
    other = os.environ.get("COMPAT_BOOTSTRAP")
    if other:
        yield other
        return
    with Tidelog(tmp_path_factory.mktemp("groups") / "data", QUICK_GROUPS) as broker:
        yield broker.bootstrap
