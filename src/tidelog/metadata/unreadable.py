"""Committed records that can't be read, or can't follow what came before them: which one it is, and where.

Whoever follows the metadata can't leave one out: all that comes behind it would be folded into another image than the
one it was decided on.
"""

from collections.abc import Sequence

from tidelog.metadata.apply import ImageBuilder, ImageError
from tidelog.metadata.image import ClusterImage
from tidelog.wire.errors import MalformedError
from tidelog.wire.records.metadata import Record, decode_record


class UnreadableRecordError(Exception):
    """`place` says which record, or which records, of the metadata log; `reason` what is wrong with it."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason


def decode_records(values: Sequence[bytes], first_offset: int) -> list[Record]:
    """The records of a batch; an UnreadableRecordError names the one that can't be decoded."""
    try:
        return [decode_record(value) for value in values]
    except MalformedError:
        for offset, value in enumerate(values, first_offset):
            try:
                decode_record(value)
            except MalformedError as error:
                raise UnreadableRecordError(f"the record at offset {offset}", str(error)) from None
        raise


def locate(
    image: ClusterImage, records: Sequence[Record], offsets: Sequence[int], error: ImageError
) -> UnreadableRecordError:
    """Which of the records, that couldn't be folded into the image all at once, is the first that can't."""
    builder = ImageBuilder(image)
    for record, offset in zip(records, offsets, strict=True):
        try:
            builder.apply(record)
        except ImageError as reason:
            return UnreadableRecordError(f"the record at offset {offset}", str(reason))
    return UnreadableRecordError(f"the records up to offset {offsets[-1]}", str(error))
