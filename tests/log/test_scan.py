"""Going through a segment: what a file that is shorter than it should be gives, and that it comes to an end."""

import pytest
from tests.log.shore import batch

from tidelog.log.scan import BadBatch, batches, locate
from tidelog.sim.disk import SimDisk, SimFile
from tidelog.sim.random import SimRandom

ONE = batch(b"a" * 100).encode()


def file_of(data: bytes) -> SimFile:
    file = SimDisk(SimRandom(1)).open("/00000000000000000000.log", create=True)
    file.append(data)
    return file


@pytest.mark.parametrize("missing", [1, len(ONE) - 61, len(ONE) - 60, len(ONE) - 1, len(ONE), len(ONE) + 1, 3000])
def test_a_file_that_ends_early_gives_what_it_has_and_then_says_so(missing: int) -> None:
    whole = ONE * 40
    file = file_of(whole[: len(whole) - missing])
    found: list[int] = []
    with pytest.raises(BadBatch) as bad:
        found.extend(pos for pos, _ in batches(file, 0, len(whole), check=True))
    assert found == list(range(0, file.size() - len(ONE) + 1, len(ONE)))
    assert bad.value.pos == len(found) * len(ONE)
    assert locate(file, 0, len(whole), 1) is None


def test_a_file_that_became_empty_says_so() -> None:
    with pytest.raises(BadBatch, match="ends 500 bytes early"):
        list(batches(file_of(b""), 0, 500, check=False))


def test_a_batch_larger_than_a_read_is_whole_or_bad() -> None:
    large = batch(b"x" * 3_000_000).encode()
    assert [pos for pos, _ in batches(file_of(large + ONE), 0, len(large + ONE), check=True)] == [0, len(large)]
    with pytest.raises(BadBatch, match="are here"):
        list(batches(file_of(large[:-1]), 0, len(large + ONE), check=True))
