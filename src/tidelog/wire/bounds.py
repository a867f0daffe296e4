"""The bounds of messages. How they relate, to those of other areas too, is in tests/wire/test_bounds.py."""

STRING_BYTES_MAX = 32767
"""A string's, where its length is 16 bits; as in Kafka it holds for longer lengths, too."""
REQUEST_ELEMENTS_MAX = 250_000
"""Elements of all arrays of one request: 100,000 topics with a partition each, and room besides."""
TAGGED_FIELDS_MAX = 1000
"""Tagged fields in one place; a handful are known."""
REQUEST_TAGGED_FIELDS_MAX = 250_000
"""Tagged fields of all elements of one request: one of a newer client's in each of them, at least."""
ELEMENTS_A_STEP = 64
"""Of an array that is read, written or let go between two turns of the loop."""
MESSAGE_CHARACTERS_MAX = 4000
"""Messages repeat what the client sent, which may be as long as a string can be; they must fit into one.

Errors are cut when they are made, and all messages when they are encoded (`wire/encode.py`).
"""
