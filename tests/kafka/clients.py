"""Apache Kafka's own tools and clients, as somebody types them: what they say, or an AssertionError where they fail."""

import time

from tests.kafka.apache import tool

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def run(main_class: str, *args: str, input: str | None = None) -> str:
    done = tool(main_class, *args, input=input)
    assert done.returncode == 0, f"{main_class} {' '.join(args)} failed:\n{done.stdout}\n{done.stderr}"
    assert "Exception" not in done.stderr, done.stderr
    return done.stdout


def make_topic(bootstrap: str, name: str, *replicas: str) -> None:
    """A topic whose partitions are on these brokers: "4:5" is one of two replicas, led by 4. Where a new controller has
    fenced a broker that didn't find it soon, once that one is let in again."""
    assignment = ("--replica-assignment", ",".join(replicas))
    create = ("--bootstrap-server", bootstrap, "--create", "--topic", name, *assignment)
    done = tool("TopicCommand", *create)
    for _ in range(20):
        if "fenced" not in done.stdout:
            break
        time.sleep(0.2)
        done = tool("TopicCommand", *create)
    assert done.returncode == 0, f"{name} could not be made:\n{done.stdout}\n{done.stderr}"


def write(bootstrap: str, topic: str, lines: list[str]) -> None:
    """By Java's producer, which waits for all acknowledgements."""
    run("ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic, input="\n".join(lines) + "\n")


def read(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[str]:
    """The first records of a partition, by Java's consumer without a group."""
    where = ("--partition", str(partition), "--offset", "0", "--max-messages", str(count), "--timeout-ms", "30000")
    return run(CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, *where).splitlines()


def read_as_group(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    """The next records of a group, by Java's consumer, which commits how far it came."""
    how = ("--group", group, "--max-messages", str(count), "--timeout-ms", "30000")
    settings = (
        "--command-property",
        "auto.offset.reset=earliest",
        "--command-property",
        "isolation.level=read_committed",
    )
    return run(CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, *how, *settings).splitlines()


def write_in_transactions(bootstrap: str, topic: str, count: int, transactional_id: str) -> None:
    """Records of ten bytes by Java's producer, a transaction for all that it sends in 100 ms."""
    how = ("--num-records", str(count), "--record-size", "10", "--throughput", "100")
    transactions = ("--transactional-id", transactional_id, "--transaction-duration-ms", "100")
    run("ProducerPerformance", "--bootstrap-server", bootstrap, "--topic", topic, *how, *transactions)
