"""A broker that comes back: what the controllers think of its replicas then."""

from tests.sim.clusters import all_serve, cluster, settle
from tidelog.metadata.image import PartitionImage
from tidelog.sim.cluster.node import Machine
from tidelog.sim.cluster.shape import BROKER, CONTROLLER
from tidelog.sim.cluster.world import ClusterWorld
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest


def made(world: ClusterWorld, broker: Machine, replicas: int = 1) -> PartitionImage:
    """The only partition of a topic that was made through this broker."""
    channel = broker.running.broker.services.channel
    topic = CreatableTopic(name="tide", num_partitions=1, replication_factor=replicas)
    done = channel.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5000)
    world.wait(lambda: done.done, 10.0, lambda: "the topic")
    assert not done.result().topics[0].error_code
    world.wait(lambda: "tide" in broker.running.broker.services.metadata.image.topics, 5.0, lambda: "it to be known")
    return partition(broker)


def partition(machine: Machine) -> PartitionImage:
    return machine.running.broker.services.metadata.image.topics["tide"].partitions[0]


def stop(world: ClusterWorld, machine: Machine) -> None:
    machine.down = True  # until it is started
    gone: list[bool] = []
    machine.running.stop(lambda: gone.append(True))
    world.wait(lambda: bool(gone), 30.0, lambda: f"{machine.name} to stop")


def test_broker_that_is_stopped_before_it_was_registered_still_says_how_it_stopped_before() -> None:
    """Nothing was written in between: the controllers have no reason to think that it lost anything."""
    world = cluster((CONTROLLER, BROKER))
    controller, broker = world.controllers[0], world.brokers[0]
    before = made(world, broker)
    stop(world, broker)
    controller.down = True
    controller.kill()
    broker.start()
    settle(world, 3.0)
    assert not broker.ready
    stop(world, broker)
    controller.start()
    broker.start()
    all_serve(world)
    after = partition(broker)
    assert (after.leader, after.leader_epoch, after.isr) == (before.leader, before.leader_epoch, before.isr)
