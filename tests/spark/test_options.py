"""Options of the data source: Kafka's names, and errors that say what to write."""

import pickle
from pathlib import Path

import pytest

from tidelog.rpc.offsets import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.spark.source.options import OptionError, SourceOptions, Spot, read_options

HERE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def batch(**given: str) -> SourceOptions:
    return read_options({**HERE, "subscribe": "orders", **given}, streaming=False)


def stream(**given: str) -> SourceOptions:
    return read_options({**HERE, "subscribe": "orders", **given}, streaming=True)


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    assert (batch().start, batch().end) == (Spot("earliest"), Spot("latest"))
    assert stream().start == Spot("latest")


def test_what_was_aborted_is_not_read_unless_it_is_asked_for() -> None:
    assert (batch().isolation, stream().isolation) == (READ_COMMITTED, READ_COMMITTED)
    assert stream(**{"kafka.isolation.level": "read_uncommitted"}).isolation == READ_UNCOMMITTED


def test_options_travel_to_tasks() -> None:
    assert pickle.loads(pickle.dumps(batch(minPartitions="4"))) == batch(minPartitions="4")


def test_names_are_told_apart_without_case() -> None:
    assert batch(INCLUDEHEADERS="True").headers
    assert batch(failondataloss="false").fail_on_loss is False


def test_the_three_ways_to_subscribe() -> None:
    assert batch(subscribe="a, b,a").topics == ("a", "b")
    assert read_options({**HERE, "subscribePattern": "shop-.*"}, streaming=False).pattern == "shop-.*"
    assigned = read_options({**HERE, "assign": '{"a":[0,2]}'}, streaming=False).assigned
    assert assigned == (("a", 0), ("a", 2))


def test_where_to_start_and_end() -> None:
    spot = batch(startingOffsets='{"orders":{"0":23,"1":-2}}').start
    assert spot == Spot("offsets", {"orders": {0: 23, 1: -2}})
    assert batch(startingTimestamp="1000", startingOffsets="earliest").start == Spot("time", time_ms=1000)
    by_time = batch(endingOffsetsByTimestamp='{"orders":{"0":5}}').end
    assert by_time == Spot("times", {"orders": {0: 5}})


def test_limits_and_a_group_to_commit_to() -> None:
    options = stream(
        **{"kafka.request.timeout.ms": "1000"}, maxOffsetsPerTrigger="100", maxTriggerDelay="2m", commitOffsetsTo="g"
    )
    assert (options.group, options.max_per_trigger) == ("g", 100)
    assert (options.max_trigger_delay_ms, options.rpc.request_timeout_s) == (120_000, 1.0)


@pytest.mark.parametrize(
    ("text", "millis"),
    [("60000", 60_000), ("15M", 900_000), ("2 min", 120_000), ("1d", 86_400_000), ("2500us", 2)],
)
def test_a_delay_is_read_as_spark_reads_times(text: str, millis: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == millis


def test_options_of_the_connector_that_have_no_use_here_are_taken() -> None:
    of_the_connector = {
        "kafkaConsumer.pollTimeoutMs": "1000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "10",
        "partition.metadata.cache.ttl.ms": "60000",
        "kafka.session.timeout.ms": "10000",
        "kafka.max.poll.records": "5000",
        "kafka.acks": "all",
        "kafka.group.id": "billing",
        "groupIdPrefix": "spark",
    }
    assert stream(**of_the_connector) == stream()


def test_which_starts_are_elsewhere_when_they_are_asked_for_again() -> None:
    assert stream().starts_at_an_end
    assert stream(startingOffsets='{"orders":{"0":5,"1":-1}}').starts_at_an_end
    assert stream(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest").starts_at_an_end
    assert not stream(startingTimestamp="5").starts_at_an_end
    assert not stream(startingOffsets='{"orders":{"0":5,"1":-2}}').starts_at_an_end


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka.bootstrap.servers": ""}, "option kafka.bootstrap.servers: no broker's address is given"),
        ({"kafka.bootstrap.servers": "sea"}, "option kafka.bootstrap.servers: 'sea' has no port: write sea:9092"),
        ({"kafka.isolation.levle": "x"}, r"unknown option kafka.isolation.levle; did you mean kafka.isolation.level\?"),
        ({"kafka.tides": "x"}, r"unknown option kafka.tides; docs/pipelines/source.md lists those that there are"),
        ({"isolation.level": "x"}, r"unknown option isolation.level; did you mean kafka.isolation.level\?"),
        ({"kafka.subscribe": "x"}, r"unknown option kafka.subscribe; did you mean subscribe\?"),
        ({"kafka.ssl.cipher.suites": "x"}, "option kafka.ssl.cipher.suites is not supported: .*OpenSSL"),
        ({"kafka.config.providers": "x"}, "option kafka.config.providers is not supported: no value is looked up"),
        ({"commitOffsetsTo": ""}, "option commitOffsetsTo is empty"),
        ({"path": "orders"}, "option path is not supported: topics are named by subscribe"),
        ({"checkpointLocation": "x"}, "option checkpointlocation is not supported: it is the query's"),
        ({"topic": "orders"}, "option topic is not supported: it is for writing; topics are read by subscribe"),
        ({"subscribePattern": "a.*"}, "one of the options .* is needed, not subscribe and subscribePattern together"),
        ({"subscribe": " , "}, "names no topic"),
        ({"startingOffset": "earliest"}, "unknown option startingoffset; did you mean startingOffsets?"),
        ({"startingOffsets": "first"}, r"'first' is not known here; write earliest, latest or \{"),
        ({"startingOffsets": '{"orders":[1]}'}, "orders has .* where partitions are expected"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "orders-0 has -3"),
        ({"startingOffsets": "latest"}, "can't start at latest"),
        ({"endingOffsets": "earliest"}, "can't end at earliest"),
        ({"startingTimestamp": "yesterday"}, "no time in milliseconds"),
        ({"minPartitions": "0"}, "minPartitions: '0' is no number above 0"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' is neither true nor false"),
        ({"kafka.isolation.level": "dirty"}, "neither read_committed nor read_uncommitted"),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets instead"),
        ({"kafka.security.protocol": "SASL_SSL"}, "SASL is not supported yet"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "not one of error, latest"),
        ({"maxTriggerDelay": "soon"}, "write 15m, 30s or 1h"),
        ({"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"}, "20 is more than maxOffsetsPerTrigger.* 15"),
        ({"startingTimestamp": "7", "endingTimestamp": "6"}, "startingTimestamp: 7 is after endingTimestamp, 6"),
        ({"startingTimestamp": str(2**63)}, "no time in milliseconds"),
        ({"startingOffsets": f'{{"orders":{{"0":{2**63}}}}}'}, "orders-0 has 9223372036854775808"),
        (
            {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"0":8}}'},
            "startingOffsets: orders-0 starts at 9, after its end, 8",
        ),
        ({"kafka.enable.auto.commit": "true"}, "enable.auto.commit is not supported: offsets live in Spark's"),
        ({"kafka.KEY.deserializer": "x"}, "key.deserializer is not supported"),
        ({"kafka.interceptor.classes": "x"}, "interceptor.classes is not supported"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        batch(**given)


def test_a_store_of_javas_is_said_to_be_none_that_is_read(tmp_path: Path) -> None:
    store = tmp_path / "truststore.jks"
    given = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": str(store)}
    with pytest.raises(OptionError, match=r"no certificates can be read there: .*No such file"):
        batch(**given)
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(OptionError, match=r"a JKS or PKCS12 store is converted with keytool"):
        batch(**given)
    with pytest.raises(OptionError, match=r"ssl.truststore.type=JKS: only PEM files can be read"):
        batch(**given, **{"kafka.ssl.truststore.type": "JKS"})


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="endingOffsets is for batch queries"):
        stream(endingOffsets="latest")


def test_nothing_and_nonsense_to_subscribe_to() -> None:
    with pytest.raises(OptionError, match="is needed"):
        read_options(HERE, streaming=False)
    with pytest.raises(OptionError, match="is no regular expression"):
        read_options({**HERE, "subscribePattern": "("}, streaming=False)
    with pytest.raises(OptionError, match=r"invalid perl operator: \(\?! \(RE2 is what is read here"):
        read_options({**HERE, "subscribePattern": "^(?!__).*"}, streaming=False)
    with pytest.raises(OptionError, match="subscribePattern is empty"):
        read_options({**HERE, "subscribePattern": " "}, streaming=False)
    with pytest.raises(OptionError, match="no list of partitions"):
        read_options({**HERE, "assign": '{"a":["x"]}'}, streaming=False)
