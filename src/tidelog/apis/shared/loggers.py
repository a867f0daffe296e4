"""The broker's loggers as a resource with settings (KIP-412): how much each writes, until the next start.

Nothing of it is kept: it is for looking into a broker that runs. Names are those of Python's loggers below `tidelog`,
and `root`; levels have Kafka's names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.controller.configs import Operation, Outcome
from tidelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.controller.configs import Change, ResourceChange

LOGGER_RESOURCE = 8
ROOT = "root"
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}
"""In the order in which they are told to who named another."""

log = logging.getLogger("tidelog.loggers")


def levels() -> dict[str, str]:
    """Each logger and the level that counts for it."""
    names = [ROOT, *sorted(name for name in logging.root.manager.loggerDict if _is_ours(name))]
    return {name: _level_name(_logger(name).getEffectiveLevel()) for name in names}


def alter_loggers(resource: ResourceChange, node_id: int, *, validate_only: bool) -> Outcome:
    """All changes, or none where one of them is wrong."""
    try:
        if resource.name != str(node_id):
            _check_id(resource.name, node_id)
        for change in resource.changes:
            _check(change)
    except KafkaError as error:
        return Outcome(error.code, error.message)
    if not validate_only:
        for change in resource.changes:
            level = logging.NOTSET if change.operation == Operation.DELETE else LEVELS[change.value or ""]
            _logger(change.name).setLevel(level)
            log.warning("the level of the logger %s is now %s", change.name, _level_name(level))
    return Outcome()


def _check_id(name: str, node_id: int) -> None:
    try:
        given = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if given != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {given}")


def _check(change: Change) -> None:
    if change.operation not in (Operation.SET, Operation.DELETE):
        known = change.operation in (Operation.APPEND, Operation.SUBTRACT)
        what = (
            Operation(change.operation).name + " operation" if known else f"Unknown operation type {change.operation}"
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} is not allowed for the BROKER_LOGGER resource")
    if change.name != ROOT and not _is_ours(change.name):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.operation == Operation.DELETE:
        if change.name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    elif change.value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}",
        )


def _is_ours(name: str) -> bool:
    return name.split(".", 1)[0] == "tidelog" and isinstance(logging.root.manager.loggerDict.get(name), logging.Logger)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _level_name(level: int) -> str:
    """The name of the highest level at or below it; what is below all writes everything."""
    return max((value, name) for name, value in {"TRACE": 0, **LEVELS}.items() if value <= level or name == "TRACE")[1]
