"""A setting that is offered is read somewhere, or the documentation says that it has no effect."""

import inspect
import re
from pathlib import Path

import pytest

import tidelog
from tidelog.config import BrokerConfig, TopicConfig, effect
from tidelog.config.broker import UNITS
from tidelog.config.setting import Settings
from tidelog.config.topic import BROKER_SYNONYMS

SOURCE = "\n".join(path.read_text() for path in Path(tidelog.__file__).parent.rglob("*.py")).replace(
    inspect.getsource(BrokerConfig.check_relations), ""
)
READ_BY_NAME = {name for group in UNITS for name, _ in group} | set(BROKER_SYNONYMS.values())


def is_read(name: str, attribute: str) -> bool:
    return (
        name in READ_BY_NAME
        or re.search(rf"(?<!log)\.{attribute}\b|_within\(config, \"{re.escape(name)}\"", SOURCE) is not None
    )


@pytest.mark.parametrize(("settings", "listed"), [(BrokerConfig, effect.BROKER), (TopicConfig, effect.TOPIC)])
def test_what_nobody_reads_is_said_to_have_no_effect(settings: type[Settings], listed: dict[str, str]) -> None:
    unread = {one.name for one in settings.SETTINGS.values() if not is_read(one.name, one.attribute)}
    assert unread == set(listed)
