"""What admins asked of the cluster and what it acknowledged, and whether that is what its nodes show."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.sim.scenarios.checkers import Violation


@dataclass(slots=True)
class KnownTopic:
    """A topic that somebody asked for. Names are never used twice; what was sent may be carried out at any later time,
    where no answer came, and also twice."""

    name: str
    partitions: int
    id: bytes | None = None
    """What it was acknowledged under."""
    leaving: bool = False
    """Somebody asked to delete it."""
    gone: bool = False
    """That was acknowledged."""
    value: int | None = None
    """Of its setting, as it was acknowledged last; None: never set, or nobody knows."""
    doubtful_values: set[int] = field(default_factory=set[int])
    """Those that may yet come, or be there."""
    brokers: dict[int, int] = field(default_factory=dict[int, int])
    """Where each of its partitions is, as far as is known."""

    @property
    def stays(self) -> bool:
        return self.id is not None and not self.leaving


class Ledger:
    """Of one run."""

    def __init__(self) -> None:
        self.topics: dict[str, KnownTopic] = {}
        self.acknowledged = 0
        self.looks = 0
        self.lost_directories: set[tuple[bytes, int]] = set()
        """Partitions whose only replica was on a disk that came back empty."""

    def asked(self, name: str, partitions: int) -> KnownTopic:
        topic = self.topics[name] = KnownTopic(name, partitions)
        return topic

    def created(self, topic: KnownTopic, topic_id: bytes) -> None:
        topic.id = topic_id
        self.acknowledged += 1

    def deleted(self, topic: KnownTopic) -> None:
        topic.gone = True
        self.acknowledged += 1

    def altered(self, topic: KnownTopic, value: int) -> None:
        topic.value = value
        self.acknowledged += 1

    def broker_wiped(self, broker_id: int) -> None:
        """What was on its disks only is gone."""
        for topic in self.topics.values():
            if topic.id is not None:
                for index in range(topic.partitions):
                    if topic.brokers.get(index, broker_id) == broker_id:
                        self.lost_directories.add((topic.id, index))

    def check_names(self, who: str, shown: Mapping[str, bytes]) -> None:
        """Whatever node shows this, however far it has come: each topic was asked for, and has the id that was told."""
        self.looks += 1
        for name, topic_id in shown.items():
            topic = self.topics.get(name)
            if topic is None:
                raise Violation(f"{who} shows topic {name}, which nobody asked for")
            if topic.stays and topic.id != topic_id:
                raise Violation(f"{who} shows topic {name} as {topic_id.hex()}, acknowledged as {_hex(topic.id)}")

    def check_all(self, who: str, shown: Mapping[str, bytes]) -> None:
        """A node that has come to the end of the metadata: all that was acknowledged is there, and nothing deleted."""
        self.check_names(who, shown)
        for topic in self.topics.values():
            found = shown.get(topic.name)
            if topic.stays and found != topic.id:
                raise Violation(
                    f"{who} doesn't show topic {topic.name}, {_hex(topic.id)}: it was acknowledged, and is lost"
                )
            if topic.gone and topic.id is not None and found == topic.id:
                raise Violation(
                    f"{who} shows topic {topic.name}, {_hex(topic.id)}, again: its deletion was acknowledged"
                )

    def check_value(self, who: str, topic: KnownTopic, value: int | None) -> None:
        """The setting of a topic that stays."""
        if value != topic.value and value not in topic.doubtful_values:
            raise Violation(
                f"{who} has {value} for {topic.name}; acknowledged was {topic.value}, "
                f"and possible {sorted(topic.doubtful_values)}"
            )


def _hex(topic_id: bytes | None) -> str:
    return "unknown" if topic_id is None else topic_id.hex()
