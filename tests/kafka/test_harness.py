"""The harness itself: an Apache Kafka that starts, serves, dies and comes back on its folder."""

from pathlib import Path

from tests.kafka.apache import ApacheKafka, tool


def test_a_killed_kafka_comes_back_on_its_folder_and_port(jars: Path, tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "data") as kafka:
        made = tool("TopicCommand", "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "kept")
        assert made.returncode == 0, made.stdout + made.stderr
        kafka.kill()
        kafka.start()
        listed = tool("TopicCommand", "--bootstrap-server", kafka.bootstrap, "--list")
        assert listed.stdout.split() == ["kept"]
        kafka.stop()
