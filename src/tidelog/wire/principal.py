"""Who a request in an Envelope is from, as Kafka's brokers write it: a version of two bytes, then the body."""

import struct
from functools import cache

from tidelog.wire.codec import decoder, encoder, message
from tidelog.wire.decode import Decode
from tidelog.wire.errors import MalformedError

_VERSION = struct.Struct(">h")


@message(key=0, versions="0", flexible="0+")
class DefaultPrincipalData:
    type: str = ""
    name: str = ""
    token_authenticated: bool = False


def encode_principal(principal: DefaultPrincipalData) -> bytes:
    """
    >>> encode_principal(DefaultPrincipalData(type="User", name="ANONYMOUS"))
    b'\\x00\\x00\\x05User\\nANONYMOUS\\x00\\x00'
    """
    return _VERSION.pack(0) + encoder(DefaultPrincipalData, 0)(principal)


def decode_principal(data: bytes) -> DefaultPrincipalData:
    """
    >>> decode_principal(encode_principal(DefaultPrincipalData(type="User", name="ANONYMOUS")))
    DefaultPrincipalData(type='User', name='ANONYMOUS', token_authenticated=False)
    """
    if data[:2] != _VERSION.pack(0):
        raise MalformedError("a principal of another version than 0")
    return _decoder()(data, 2)[0]


@cache
def _decoder() -> Decode[DefaultPrincipalData]:
    return decoder(DefaultPrincipalData, 0)
