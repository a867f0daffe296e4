"""How much one request may change: what it costs, in time and memory, is a record's cost times this."""

from tidelog.controller.bounds import CHANGES_MAX
from tidelog.wire.errors import ErrorCode, KafkaError


def check_changes(count: int, what: str) -> None:
    """POLICY_VIOLATION where a request asks for too many changes of a kind."""
    if count > CHANGES_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{count} {what} in one request; {CHANGES_MAX} are allowed: send several"
        )
