"""CRC-32C, as record batches and producer snapshots carry it.

The package `crc32c` looks its own version up among all installed distributions when it is imported: 40 ms, more than a
tenth of a broker's allowed start. So its extension module is loaded by itself; where that can't be found, the package.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol, cast


class Crc32c(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int:
        """The checksum of `data`; `value` is that of what came before it."""
        ...


def _load() -> Crc32c:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c

        return cast(Crc32c, crc32c)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.crc32c


crc32c = _load()
