"""Settings: looked at with where they come from, changed all or none, and never by a misspelt name."""

import pytest

from tidelog.client import Admin, ClientError
from tidelog.client.configs import Entry, Kind, alter, describe
from tidelog.client.limits import BATCH_BYTES, batch_bytes


def entry(bootstrap: str, kind: Kind, name: str | None, setting: str) -> Entry:
    return next(each for each in describe(bootstrap, kind, name)[1] if each.name == setting)


def test_a_setting_says_where_it_comes_from(bootstrap: str, topic: str) -> None:
    before = entry(bootstrap, "topic", topic, "segment.ms")
    assert (before.is_default, before.documentation is None) == (True, False)
    alter(bootstrap, "topic", topic, {"segment.ms": "5000"}, ())
    assert (entry(bootstrap, "topic", topic, "segment.ms").value, Admin(bootstrap).topic(topic).configs) == (
        "5000",
        {"segment.ms": "5000"},
    )
    assert entry(bootstrap, "topic", topic, "segment.ms").source == "topic"
    alter(bootstrap, "topic", topic, {}, ["segment.ms"])
    assert entry(bootstrap, "topic", topic, "segment.ms") == before


def test_a_dry_run_changes_nothing_and_tells_what_is_wrong(bootstrap: str, topic: str) -> None:
    alter(bootstrap, "topic", topic, {"segment.ms": "5000"}, (), dry_run=True)
    assert entry(bootstrap, "topic", topic, "segment.ms").is_default
    with pytest.raises(ClientError, match=f"topic {topic}: INVALID_CONFIG"):
        alter(bootstrap, "topic", topic, {"segment.ms": "soon"}, (), dry_run=True)


def test_where_one_is_wrong_none_is_changed(bootstrap: str, topic: str) -> None:
    for wrong in ({"segment.bytes": "x"}, {"retention.mss": "1"}):
        with pytest.raises(ClientError):
            alter(bootstrap, "topic", topic, {"segment.ms": "5000", **wrong}, ())
    assert entry(bootstrap, "topic", topic, "segment.ms").is_default


def test_a_misspelt_name_is_told_with_the_one_that_is_meant(bootstrap: str, topic: str) -> None:
    with pytest.raises(ClientError, match=r"there is no setting of a topic retention.mss: did you mean retention.ms\?"):
        alter(bootstrap, "topic", topic, {"retention.mss": "1"}, ())
    with pytest.raises(ClientError, match=rf"there is no topic {topic}x: did you mean {topic}\?"):
        describe(bootstrap, "topic", f"{topic}x")


def test_without_a_name_the_first_broker_is_meant_and_a_topic_has_to_be_named(bootstrap: str) -> None:
    name, entries = describe(bootstrap, "broker", None)
    assert name.isdecimal()
    assert next(each.value for each in entries if each.name == "num.partitions") == "2"
    with pytest.raises(ClientError, match="which topic"):
        describe(bootstrap, "topic", None)
    with pytest.raises(ClientError, match="there is no broker 77"):
        describe(bootstrap, "broker", "77")


def test_what_a_broker_can_not_change_while_it_runs_is_told(bootstrap: str) -> None:
    name, _ = describe(bootstrap, "broker", None)
    with pytest.raises(ClientError, match=r"log\.dirs can't be changed while the broker runs"):
        alter(bootstrap, "broker", name, {"log.dirs": "/elsewhere"}, ())


def test_batches_are_no_larger_than_the_topic_takes(bootstrap: str, topic: str) -> None:
    assert batch_bytes(bootstrap, topic) == BATCH_BYTES
    alter(bootstrap, "topic", topic, {"max.message.bytes": "5000"}, ())
    assert batch_bytes(bootstrap, topic) == 5000
    assert batch_bytes(bootstrap, f"{topic}-not-made-yet") == BATCH_BYTES
