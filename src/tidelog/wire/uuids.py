"""Uuids as Kafka writes them: 16 bytes on the wire, 22 characters of url-safe base64 in text."""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

ZERO_UUID = bytes(16)
"""No uuid: what stands where none was given."""

METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""The topic id of the metadata log; never given to another topic."""

_TO_URL_SAFE = str.maketrans("+/", "-_")
_FROM_URL_SAFE = str.maketrans("-_", "+/")


def uuid_text(uuid: bytes) -> str:
    """
    >>> uuid_text(bytes(15) + b"\\x01")
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    assert len(uuid) == 16, "a uuid has 16 bytes"
    return b2a_base64(uuid, newline=False).decode("ascii").rstrip("=").translate(_TO_URL_SAFE)


def uuid_bytes(text: str) -> bytes:
    """The uuid of its text; ValueError where the text is none.

    >>> uuid_bytes("AAAAAAAAAAAAAAAAAAAAAQ")[-1]
    1
    """
    try:
        if len(text) != 22 or "+" in text or "/" in text:
            raise ValueError
        return a2b_base64(text.translate(_FROM_URL_SAFE).encode("ascii") + b"==", strict_mode=True)
    except (Base64Error, ValueError):
        raise ValueError(f"{text!r} is not a uuid: 22 characters of url-safe base64 are") from None
