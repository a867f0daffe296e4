"""UnregisterBroker (key 64): forget a broker that won't come back. Flexible from the first version."""

from tidelog.wire.codec import i16, i32, message


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: i32 = 0


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: str | None = ""
