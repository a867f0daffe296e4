"""Frames below the messages: unknown APIs and versions, cut and padded bodies, lengths that lie."""

import struct
from random import Random

from tests.kafka.same_answers.side import Side, versions
from tests.raw import ClosedError, Connection
from tidelog.wire.keys import RANGES, ApiKey


def outcome(side: Side, note: str, *frames: bytes) -> None:
    """What comes back for these bytes: how long the answer is and how it begins, or that the connection was closed."""
    with Connection(side.bootstrap, timeout_s=5.0) as connection:
        try:
            for frame in frames:
                connection.send_bytes(frame)
            answer = connection.read_frame()
        except ClosedError:
            side.note(note, "closed")
        except TimeoutError:
            side.note(note, "no answer")
        else:
            side.note(note, ("answered", answer[:6].hex()))


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def unknown_apis_and_versions(side: Side, rng: Random) -> None:
    for key in (-1, 4, 5, 6, 7, 999, 32767):
        outcome(side, f"API {key}", framed(struct.pack(">hhih", key, 0, 1, -1)))
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.CREATE_TOPICS):
        for version in (-1, RANGES[key].min - 1, RANGES[key].max + 1, 99):
            outcome(side, f"{key.name} v{version}", framed(struct.pack(">hhih", key, version, 1, -1) + b"\0" * 8))
    for version in (5, 6, 99, 32767, -1):
        frame = framed(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 1, -1) + b"\0\2a\2b\0")
        outcome(side, f"API_VERSIONS v{version}", frame)


def lengths_that_lie(side: Side, rng: Random) -> None:
    header = struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1)
    for note, frame in {
        "a negative length": struct.pack(">i", -1),
        "a very negative length": struct.pack(">i", -(2**31)),
        "too long": struct.pack(">i", 2**31 - 1) + header,
        "empty": framed(b""),
        "two bytes": framed(b"\0\0"),
        "a header alone": framed(header[:8]),
        "no body": framed(header),
        "a client id that is too long": framed(struct.pack(">hhih", ApiKey.METADATA, 1, 1, 500) + b"x"),
        "an array that is too long": framed(header + struct.pack(">i", 2**31 - 1)),
        "an array of -2": framed(header + struct.pack(">i", -2)),
        "a name that is too long": framed(header + struct.pack(">ih", 1, 32767) + b"x"),
        "a name of -1": framed(header + struct.pack(">ih", 1, -1)),
        "bytes that aren't UTF-8": framed(header + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
        "null topics": framed(header + struct.pack(">i", -1)),
        "a byte too many": framed(header + struct.pack(">i", 0) + b"\0"),
    }.items():
        outcome(side, note, frame)


def cut_bodies(side: Side, rng: Random) -> None:
    """A request cut anywhere is refused by closing, and the next connection is served."""
    whole = struct.pack(">hhih", ApiKey.METADATA, 9, 1, -1) + b"\0" + b"\2\4abc\0" + b"\0\0\0" + b"\0"
    for end in range(8, len(whole)):
        outcome(side, f"Metadata v9 cut to {end}", framed(whole[:end]))
    for version in versions(ApiKey.METADATA):
        side.ask(ApiKey.METADATA, version, {"topics": [{"name": "a b"}]}, "and it serves on")


SCRIPTS = (unknown_apis_and_versions, lengths_that_lie, cut_bodies)
