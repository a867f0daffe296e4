"""Settings of a broker from flags, variables and a file."""

from pathlib import Path

import pytest

from tidelog.cli.serve_flags import Given, parse_plain
from tidelog.cli.settings import gather
from tidelog.config.broker import BrokerConfig
from tidelog.config.setting import ConfigError

FILE = """
listen = "127.0.0.1:1111"
log.segment.bytes = 1111111
"log.retention.ms" = 1111
auto.create.topics.enable = false

[tidelog]
durability = "os"
"""


def test_without_anything_the_defaults_serve_localhost() -> None:
    settings, warnings = gather(Given(), {})
    assert settings == {"log.dirs": "./data", "listeners": "PLAINTEXT://127.0.0.1:9092"}
    assert warnings == []


def test_flags_win_over_variables_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text(FILE)
    variables = {"TIDELOG_LOG_SEGMENT_BYTES": "2222222", "TIDELOG_LOG_RETENTION_MS": "2222", "HOME": "/"}
    settings, warnings = gather(Given(config=str(file), set=("log.segment.bytes=3333333",)), variables)
    assert settings == {
        "log.dirs": "./data",
        "listeners": "PLAINTEXT://127.0.0.1:1111",
        "log.segment.bytes": "3333333",
        "log.retention.ms": "2222",
        "auto.create.topics.enable": "false",
        "tidelog.durability": "os",
    }
    assert warnings == []
    BrokerConfig.parse(settings)


def test_data_and_listen_are_short_for_kafkas_names() -> None:
    variables = {"TIDELOG_DATA": "/from/variable", "TIDELOG_LISTEN": "localhost:1"}
    settings, _ = gather(Given(), variables)
    assert settings == {"log.dirs": "/from/variable", "listeners": "PLAINTEXT://localhost:1"}
    settings, _ = gather(Given(data="/from/flag", listen="[::1]:0"), variables)
    assert settings == {"log.dirs": "/from/flag", "listeners": "PLAINTEXT://[::1]:0"}


def test_a_variable_of_ours_and_the_file_may_be_named_by_variables(tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text("log.segment.bytes = 1111111")
    settings, warnings = gather(Given(), {"TIDELOG_CONFIG": str(file), "TIDELOG_DURABILITY": "os"})
    assert settings["tidelog.durability"] == "os"
    assert settings["log.segment.bytes"] == "1111111"
    assert warnings == []


def test_a_variable_that_names_no_setting_is_told() -> None:
    _, warnings = gather(Given(), {"TIDELOG_LOG_SEGMENT_BITES": "1", "TIDELOG_BOOTSTRAP": "x:1"})
    assert warnings == ["the variable TIDELOG_LOG_SEGMENT_BITES names no setting and is ignored"]


@pytest.mark.parametrize("text", ['data = "a"\nlog.dirs = "b"', 'listen = "h:1"\nlisteners = "PLAINTEXT://h:2"'])
def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="are the same setting: give one of them"):
        gather(Given(config=str(file)), {})


def test_variables_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="TIDELOG_DATA and TIDELOG_LOG_DIRS are the same setting"):
        gather(Given(), {"TIDELOG_DATA": "a", "TIDELOG_LOG_DIRS": "b"})


@pytest.mark.parametrize("pair", ["log.segment.bytes", "=5", ""])
def test_a_setting_without_name_or_value_is_refused(pair: str) -> None:
    with pytest.raises(ConfigError, match="expected NAME=VALUE"):
        gather(Given(set=(pair,)), {})


@pytest.mark.parametrize("address", ["localhost", "localhost:", "localhost:http", "9092"])
def test_an_address_needs_host_and_port(address: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        gather(Given(listen=address), {})


def test_a_file_that_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml: No such file"):
        gather(Given(config=str(tmp_path / "missing.toml")), {})
    broken = tmp_path / "broken.toml"
    broken.write_text("this is = = not toml")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        gather(Given(config=str(broken)), {})


def test_plain_flags_are_read_without_click() -> None:
    line = ["--data", "d", "--listen=h:1", "--set", "a=1", "--set=b=2", "--config", "f", "--exit-with-stdin"]
    assert parse_plain(line) == Given("d", "h:1", ("a=1", "b=2"), "f", None, True)
    assert parse_plain([]) == Given()


@pytest.mark.parametrize(
    "line", [["--help"], ["--data"], ["--data", "--listen"], ["--dta", "x"], ["x"], ["--exit-with-stdin=1"]]
)
def test_what_is_not_plain_is_left_to_click(line: list[str]) -> None:
    assert parse_plain(line) is None
