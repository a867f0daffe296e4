"""Topics of the coordinators that were made while one broker was there: copied, as the others come."""

from tests.replica.copied import Copied
from tidelog.apis.shared.internal_topics import creatable
from tidelog.sim.cluster.node import Machine
from tidelog.wire.messages.create_topics import CreateTopicsRequest

STATE = "__transaction_state"


def test_others_that_come_get_replicas_and_transactions_ask_for_two() -> None:
    settings = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}
    copied = Copied(settings=settings)
    first, *others = copied.machines.values()
    copied.kill(*others)
    copied.settle(2.0)
    for name in ("__consumer_offsets", STATE):
        topic = creatable(name, copied.services(first).config, 1)
        answer = copied.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000)).topics[0]
        assert (answer.error_code, answer.replication_factor) == (0, 1)

    def replicas(machine: Machine, name: str) -> set[tuple[int, int]]:
        topic = copied.image(machine).topics.get(name)
        return {(len(one.replicas), len(one.isr)) for one in topic.partitions} if topic is not None else set()

    copied.settle(3.0)
    assert replicas(first, STATE) == {(1, 1)}
    copied.start(*others)
    for name in ("__consumer_offsets", STATE):
        copied.wait(lambda name=name: replicas(first, name) == {(3, 3)}, "all three to have a copy")
    copied.wait(lambda: copied.image(first).topic_config(STATE)["min.insync.replicas"] == "2", "two to be asked for")
    copied.check()
