"""The settings of Kafka's clients among options: each is honoured, without effect or refused, and documented."""

from pathlib import Path

import pytest

from tidelog.spark import client_options
from tidelog.spark.client_options import NO_EFFECT, REFUSED, TAKEN, problem_of_reaching, problems
from tidelog.spark.sink import sink_options
from tidelog.spark.source import options

PAGE = (Path(__file__).parents[2] / "docs/pipelines/source.md").read_text()
SINK = (Path(__file__).parents[2] / "docs/pipelines/sink.md").read_text()


def test_every_option_is_documented() -> None:
    names = [*options.NAMES, *options.CONNECTOR_ONLY, *REFUSED, *(f"kafka.{name}" for name in client_options.READING)]
    names += [name for names in NO_EFFECT.values() for name in names]
    assert [name for name in names if f"`{name}`" not in PAGE] == []
    names = [*sink_options.NAMES, *(f"kafka.{name}" for name in client_options.WRITING)]
    assert [name for name in names if f"`{name}`" not in SINK] == []


def test_a_setting_is_one_of_these_only() -> None:
    kinds = [client_options.REACHING, client_options.READING, client_options.WRITING, REFUSED, *NO_EFFECT.values()]
    everything = [name for kind in kinds for name in kind]
    assert len(everything) == len(set(everything))
    assert not TAKEN & set(REFUSED)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("startingoffset", "did you mean startingOffsets?"),
        ("kafka.session.timeout", "did you mean kafka.session.timeout.ms?"),
        ("security.protocol", "did you mean kafka.security.protocol?"),
        ("kafka.failondataloss", "did you mean failOnDataLoss?"),
        ("kafka.", "docs/pipelines/source.md lists those that there are"),
    ],
)
def test_what_was_meant_is_told(name: str, hint: str) -> None:
    assert list(problems([name], options.KNOWN, {})) == [f"unknown option {name}; {hint}"]


def test_settings_of_sasl_are_left_to_what_says_that_there_is_none() -> None:
    assert list(problems(["kafka.sasl.mechanism"], options.KNOWN, {})) == []
    assert problem_of_reaching("sasl.mechanism") is None


READ = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
WRITE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "orders"}


def refusal(**given: str) -> str:
    """What is said of options, by reading and writing alike."""
    with pytest.raises(ValueError, match="option") as reading:
        options.read_options({**READ, **given}, streaming=True)
    with pytest.raises(ValueError, match="option") as writing:
        sink_options.read_sink_options({**WRITE, **given}, streaming=True)
    assert str(reading.value) == str(writing.value)
    return str(reading.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("subscribe", "option subscribe is not supported: it is for reading; rows go to the option topic"),
        ("startingOffsets", "option startingoffsets is not supported: it is for reading"),
    ],
)
def test_a_sink_says_of_options_of_the_source_what_they_are(name: str, message: str) -> None:
    with pytest.raises(options.OptionError, match=message):
        sink_options.read_sink_options({**WRITE, name: "orders"}, streaming=True)


def test_a_value_that_no_client_takes_is_refused_also_where_it_has_no_effect() -> None:
    for name in ("fetch.max.bytes", "max.poll.records", "retries", "linger.ms", "compression.zstd.level"):
        assert refusal(**{f"kafka.{name}": "abc"}) == f"option kafka.{name}: 'abc' is no number"
    for name in ("enable.idempotence", "check.crcs", "allow.auto.create.topics"):
        assert refusal(**{f"kafka.{name}": "1"}) == f"option kafka.{name}: '1' is neither true nor false"
    for value in ("500", " 500 ", "-1", "+1"):
        options.read_options({**READ, "kafka.fetch.max.wait.ms": value}, streaming=True)
    options.read_options({**READ, "kafka.check.crcs": "True"}, streaming=True)


def test_a_setting_of_sasl_is_refused_by_its_own_name() -> None:
    said = refusal(**{"kafka.sasl.mechanism": "PLAIN"})
    assert said.startswith("option kafka.sasl.mechanism: SASL is not supported yet")
    said = refusal(**{"kafka.sasl.mechanism": "PLAIN", "kafka.security.protocol": "SASL_SSL"})
    assert said.startswith("option kafka.security.protocol=SASL_SSL: SASL is not supported yet")


@pytest.mark.parametrize("job", ["j" * 30_001, "\N{SNOWMAN}" * 10_001])
def test_a_job_id_that_fits_into_no_transactional_id_is_refused(job: str) -> None:
    with pytest.raises(ValueError, match=r"option jobId: it has 3000[13] bytes, at most 30000 fit"):
        sink_options.read_sink_options({**WRITE, "jobId": job}, streaming=False)
    with pytest.raises(ValueError, match=r"option jobQuery: it has 301 bytes, at most 300 fit"):
        sink_options.read_sink_options({**WRITE, "jobId": "job", "jobQuery": "q" * 301}, streaming=False)
    sink_options.read_sink_options({**WRITE, "jobId": "j" * 30_000, "jobQuery": "q" * 300}, streaming=False)
