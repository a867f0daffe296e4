"""Every story plays on a simulated disk and on a real one, unless it asks for one of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.log.harness import CountingDisk, LogHarness

from tidelog.env.real_disk import RealDisk
from tidelog.sim.world.disk import SimDisk
from tidelog.sim.world.random import SimRandom


@pytest.fixture(params=["simulated", "real"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogHarness]:
    disk = SimDisk(SimRandom(2)) if request.param == "simulated" else RealDisk()
    made = LogHarness(disk, str(tmp_path / "data"))
    yield made
    made.loop.kill()


@pytest.fixture
def sim() -> Iterator[LogHarness]:
    made = LogHarness(CountingDisk(SimRandom(3)))
    yield made
    made.loop.kill()


@pytest.fixture
def real(tmp_path: Path) -> Iterator[LogHarness]:
    made = LogHarness(RealDisk(), str(tmp_path / "data"))
    yield made
    made.loop.kill()
