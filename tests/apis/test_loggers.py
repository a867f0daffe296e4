"""Loggers as a resource: their levels change while the broker runs."""

import logging

import pytest

from tidelog.apis.shared.loggers import alter_loggers, levels
from tidelog.controller.configs import Change, Operation, Outcome, ResourceChange
from tidelog.wire.errors import ErrorCode

NAME = "tidelog.test.loggers"


@pytest.fixture
def logger() -> logging.Logger:
    found = logging.getLogger(NAME)
    found.setLevel(logging.NOTSET)
    return found


def alter(*changes: Change, broker: str = "1", validate_only: bool = False) -> Outcome:
    return alter_loggers(ResourceChange(8, broker, changes), 1, validate_only=validate_only)


@pytest.mark.parametrize(
    ("level", "python"), [("TRACE", 5), ("DEBUG", 10), ("INFO", 20), ("WARN", 30), ("ERROR", 40), ("FATAL", 50)]
)
def test_a_level_is_set_told_and_taken_back(logger: logging.Logger, level: str, python: int) -> None:
    assert alter(Change(NAME, Operation.SET, level)) == Outcome()
    assert (logger.level, levels()[NAME]) == (python, level)
    assert alter(Change(NAME, Operation.DELETE, None)) == Outcome()
    assert logger.level == logging.NOTSET


def test_validate_only_changes_nothing(logger: logging.Logger) -> None:
    assert alter(Change(NAME, Operation.SET, "ERROR"), validate_only=True) == Outcome()
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (Change(NAME, Operation.SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (Change("tidelog.no.such", Operation.SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (Change("asyncio", Operation.SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (Change(NAME, Operation.APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (Change(NAME, 9, "INFO"), ErrorCode.INVALID_REQUEST),
        (Change("root", Operation.DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_one_wrong_change_undoes_all(logger: logging.Logger, change: Change, code: ErrorCode) -> None:
    assert alter(Change(NAME, Operation.SET, "ERROR"), change).code is code
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize("broker", ["2", "", "one"])
def test_only_the_broker_itself_is_asked(logger: logging.Logger, broker: str) -> None:
    assert alter(Change(NAME, Operation.SET, "ERROR"), broker=broker).code is ErrorCode.INVALID_REQUEST
