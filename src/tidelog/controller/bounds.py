"""The bounds of what the controller decides. How they relate is in tests/controller/test_bounds.py."""

CHANGES_MAX = 10_000
"""Partitions made, settings changed or topics deleted by one request; Kafka has the same number, of records."""
NAME_CHARACTERS_MAX = 249
"""Of a topic's name: its partitions' folders are named after it."""
VALUE_CHARACTERS_MAX = 32_767
"""Of a setting's value."""
BATCH_BYTES = 1024 * 1024
"""A change larger than this is written as several batches within one metadata transaction."""
BATCH_RECORDS = 10_000
"""And so is one of more records than this: Kafka's controllers write no more in one."""
