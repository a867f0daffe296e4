"""How the bounds of what the controller decides relate to the metadata log, and to file names."""

from tidelog.controller import bounds
from tidelog.controller.record_log import split
from tidelog.log.names import deleted_folder, partition_folder
from tidelog.metadata.versions import MV_3_6_IV1
from tidelog.raft.driver import BATCH_BYTES_MAX
from tidelog.wire.records.cluster import BeginTransactionRecord, EndTransactionRecord
from tidelog.wire.records.metadata import encode_record

FILE_NAME_BYTES_MAX = 255  # of Linux's file systems
UTF8_BYTES_MAX = 4
PARTITIONS_MAX = 100_000  # of one topic, whose folders can be named


def test_a_change_is_written_in_batches_that_the_metadata_log_takes() -> None:
    """A batch is full with the record that reaches BATCH_BYTES, and none is larger than that of a setting."""
    largest_record = UTF8_BYTES_MAX * bounds.VALUE_CHARACTERS_MAX + 4 * bounds.NAME_CHARACTERS_MAX
    assert bounds.BATCH_BYTES + largest_record < BATCH_BYTES_MAX


def test_a_partition_of_the_longest_name_has_a_folder() -> None:
    topic = "t" * bounds.NAME_CHARACTERS_MAX
    assert len(partition_folder(topic, PARTITIONS_MAX - 1)) <= FILE_NAME_BYTES_MAX
    assert len(deleted_folder(topic, PARTITIONS_MAX - 1, bytes(16))) <= FILE_NAME_BYTES_MAX
    assert bounds.CHANGES_MAX < PARTITIONS_MAX


def test_no_batch_has_more_records_than_kafkas_controllers_write() -> None:
    values = [b"small"] * (2 * bounds.BATCH_RECORDS + 1)
    batches = list(split(values, MV_3_6_IV1))
    assert [len(batch) for batch in batches] == [bounds.BATCH_RECORDS, bounds.BATCH_RECORDS, 3]
    begin, end = encode_record(BeginTransactionRecord(name="Large change"), 0), encode_record(EndTransactionRecord(), 0)
    assert [value for batch in batches for value in batch] == [begin, *values, end]
    assert list(split(values[: bounds.BATCH_RECORDS], MV_3_6_IV1)) == [values[: bounds.BATCH_RECORDS]]
    assert list(split(values, MV_3_6_IV1 - 1)) == [values], "there are no transactions before"
