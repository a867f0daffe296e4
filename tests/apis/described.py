"""A context whose cluster is an image made by hand, for APIs that only describe."""

from types import SimpleNamespace
from typing import Any, cast

from tidelog.apis.shared.context import Context, Services
from tidelog.config import BrokerConfig
from tidelog.env import Environment
from tidelog.env.real import RealClock, RealRandom
from tidelog.metadata.chunks import chunked
from tidelog.metadata.follow import Follower
from tidelog.metadata.image import BrokerImage, ClusterImage, EndpointImage, PartitionImage, TopicImage

LEADER = PartitionImage(replicas=(1, 2), isr=(1,), leader=1, leader_epoch=4, partition_epoch=7)
HEADLESS = PartitionImage(replicas=(2,), isr=(2,), leader=-1, leader_epoch=5, partition_epoch=7)


def broker(broker_id: int, *, fenced: bool = False, rack: str | None = None) -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=10,
        incarnation_id=bytes(16),
        endpoints=(EndpointImage("PLAINTEXT", f"host{broker_id}", 9000 + broker_id),),
        features={},
        rack=rack,
        fenced=fenced,
    )


def topic(name: str, *partitions: PartitionImage) -> TopicImage:
    return TopicImage(name, name.encode().ljust(16, b"."), chunked(partitions))


def image(*topics: TopicImage, brokers: tuple[BrokerImage, ...] = (), **more: Any) -> ClusterImage:
    known = brokers or (broker(1), broker(2, fenced=True))
    return ClusterImage(
        offset=42,
        brokers={one.id: one for one in known},
        topics={one.name: one for one in topics},
        topics_by_id={one.id: one for one in topics},
        **more,
    )


def context(
    cluster: ClusterImage, version: int, *, settings: dict[str, str] | None = None, listener: str = "PLAINTEXT"
) -> Context:
    """As if asked over `listener`; only what describing needs is there."""
    nothing = cast(Any, None)
    services = Services(
        node_id=1,
        cluster_id="c" * 22,
        directory_id=bytes(16),
        config=BrokerConfig.parse(settings or {}),
        env=Environment(RealClock(), nothing, nothing, nothing, RealRandom()),
        metadata=Follower(cluster),
        controller=nothing,
        channel=nothing,
        own_channel=nothing,
        producer_ids=nothing,
        replicas=nothing,
        store=cast(Any, SimpleNamespace(offline=frozenset())),
        quorum=nothing,
        raft=nothing,
        fetch_sessions=nothing,
        replica_sessions=nothing,
        deadlines=nothing,
        endpoints={},
        groups=nothing,
        make_transactions=nothing,
    )
    return Context(services, version, "tester", "127.0.0.1", listener, 1, 1)
