"""A file's bytes in memory, for the kernel's eyes only.

A page of a mapping that can't be read (a bad sector, a file that somebody made shorter) ends a process that looks at
it, with SIGBUS. The kernel, sending from it, answers EFAULT instead. So a mapping is handed to a socket and read by
nobody here.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING
from weakref import ReferenceType

if TYPE_CHECKING:
    from tidelog.env.disk import File


class Mapping(mmap.mmap):
    """Knows its file, and doesn't keep it open."""

    file: ReferenceType[File]


def file_of(view: memoryview) -> File | None:
    """The file that a view is mapped from; None where it is of plain memory, or the file was closed since."""
    mapping = view.obj
    return mapping.file() if isinstance(mapping, Mapping) else None
