"""Arrow's columns as the bytes that compiled code takes."""

from typing import Any

import numpy
import pyarrow

arrow: Any = pyarrow
numbers: Any = numpy


def binary(rows: Any, name: str) -> Any:
    """A column of texts or bytes, as bytes; one that isn't there is null in every row."""
    if name not in rows.schema.names:
        return arrow.nulls(rows.num_rows, arrow.binary())
    column = rows.column(name)
    return column if column.type.equals(arrow.binary()) else column.cast(arrow.binary())


def buffers(column: Any) -> tuple[bytes, bytes, bytes]:
    """Offsets from 0, data, and a byte a row that says null (none where no row is)."""
    if column.offset:
        column = arrow.concat_arrays([column])
    _, ends, data = column.buffers()
    rows = len(column)
    held = ends.to_pybytes()[column.offset * 4 : (column.offset + rows + 1) * 4]
    nulls = (
        column.is_null().to_numpy(zero_copy_only=False).astype(numbers.uint8).tobytes() if column.null_count else b""
    )
    return held, b"" if data is None else data.to_pybytes(), nulls
