"""Going through a segment: what a file that is shorter than it should be gives, and that it comes to an end."""

import pytest
from tests.log.harness import batch

from tidelog.log.scan import READ_BYTES, BadBatch, batches, locate
from tidelog.sim.world.disk import SimDisk, SimFile
from tidelog.sim.world.inode import FileNode
from tidelog.sim.world.random import SimRandom
from tidelog.wire.batch import HEADER_BYTES

ONE = batch(b"a" * 100).encode()


class CountingDisk(SimDisk):
    """Counts the bytes that are read of its files."""

    bytes_read = 0

    def _opened(self, node: FileNode, path: str) -> SimFile:
        return CountingFile(self, node, path)


class CountingFile(SimFile):
    def read(self, pos: int, count: int) -> bytes:
        data = super().read(pos, count)
        assert isinstance(self._disk, CountingDisk)
        self._disk.bytes_read += len(data)
        return data


def file_of(data: bytes, disk: SimDisk | None = None) -> SimFile:
    file = (disk or SimDisk(SimRandom(1))).open("/00000000000000000000.log", create=True)
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
    if missing > len(ONE) - HEADER_BYTES:
        with pytest.raises(BadBatch, match="bytes early"):  # a reader who was told of nothing would wait for ever
            locate(file, 0, len(whole), 1)
    else:
        assert locate(file, 0, len(whole), 1) is None, "all headers are there, and none has the offset"


def test_a_file_that_became_empty_says_so() -> None:
    with pytest.raises(BadBatch, match="ends 500 bytes early"):
        list(batches(file_of(b""), 0, 500, check=False))


def test_a_batch_larger_than_a_read_is_whole_or_bad() -> None:
    large = batch(b"x" * 3_000_000).encode()
    assert [pos for pos, _ in batches(file_of(large + ONE), 0, len(large + ONE), check=True)] == [0, len(large)]
    with pytest.raises(BadBatch, match="are here"):
        list(batches(file_of(large[:-1]), 0, len(large + ONE), check=True))


def test_of_large_batches_only_the_headers_are_read_where_checksums_are_not_looked_at() -> None:
    large = batch(b"x" * 1_000_000).encode()
    disk = CountingDisk(SimRandom(1))
    file = file_of((large + ONE) * 10, disk)
    places = [at for start in range(10) for at in (start * len(large + ONE), start * len(large + ONE) + len(large))]
    assert [pos for pos, _ in batches(file, 0, file.size(), check=False)] == places
    assert 0 < disk.bytes_read <= 20 * READ_BYTES
