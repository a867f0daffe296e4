"""How the bounds of what the controller decides relate to the metadata log, and to file names."""

from tidelog.controller import bounds
from tidelog.log.names import deleted_folder, partition_folder
from tidelog.raft.driver import BATCH_BYTES_MAX

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
