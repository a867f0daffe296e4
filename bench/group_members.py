"""Members of groups as the raw driver plays them: in the classic protocol, and in the server-side one (KIP-848)."""

from typing import Any

from tests.group_requests import assignment, heartbeat_fields, join_fields

from bench.group_players import Player, Stage
from bench.programs import BenchError
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

BEAT_S = 0.5
"""How often a classic member asks whether it must join again; clients do so each 3 s."""
LATER = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
RETRY_S = 0.05


class ClassicGroup:
    """Classic members of one group; the leader gives each an equal run of partitions."""

    def __init__(
        self, stage: Stage, group: str, topic: str, partitions: int, members: int, *, over_s: float = 0.0
    ) -> None:
        """`over_s`: within how many seconds they come, one after the other; all at once otherwise."""
        self.stage = stage
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.synced: dict[int, int] = {}
        """Member's number -> the generation whose assignment it has."""
        self.count = members
        self.members: list[ClassicMember] = []
        for number in range(members):
            if over_s:
                stage.later(over_s * number / members, self._come)
            else:
                self._come()

    def _come(self) -> None:
        self.members.append(ClassicMember(self, len(self.members), self.stage.player()))

    @property
    def settled(self) -> bool:
        return len(self.synced) == self.count and len(set(self.synced.values())) == 1

    @property
    def generation(self) -> int:
        return max(self.synced.values())

    def parts(self, ids: list[str]) -> list[dict[str, Any]]:
        share, rest = divmod(self.partitions, len(ids))
        given: list[dict[str, Any]] = []
        start = 0
        for place, member in enumerate(sorted(ids)):
            end = start + share + (place < rest)
            given.append({"member_id": member, "assignment": assignment(self.topic, *range(start, end))})
            start = end
        return given


class ClassicMember:
    def __init__(self, group: ClassicGroup, number: int, player: Player) -> None:
        self.group = group
        self.number = number
        self.player = player
        self.id = ""
        self.generation = -1
        self.join()

    def join(self) -> None:
        self.group.synced.pop(self.number, None)
        fields = join_fields(self.group.group, self.group.topic, self.id, session_timeout_ms=45_000)
        self.player.ask(ApiKey.JOIN_GROUP, 7, fields | {"rebalance_timeout_ms": 60_000}, self._joined)

    def _joined(self, answer: Any) -> None:
        self.id = answer.member_id or self.id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.join()
        elif answer.error_code in LATER:
            self.group.stage.later(RETRY_S, self.join)
        elif answer.error_code:
            raise BenchError(f"a member could not join: {ErrorCode(answer.error_code).name}")
        else:
            self.generation = answer.generation_id
            ids = [member.member_id for member in answer.members] if answer.leader == self.id else []
            fields = {
                "group_id": self.group.group,
                "generation_id": self.generation,
                "member_id": self.id,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": self.group.parts(ids) if ids else [],
            }
            self.player.ask(ApiKey.SYNC_GROUP, 5, fields, self._synced)

    def _synced(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif answer.error_code:
            raise BenchError(f"a member could not sync: {ErrorCode(answer.error_code).name}")
        else:
            self.group.synced[self.number] = self.generation
            self.group.stage.later(BEAT_S, self.beat)

    def beat(self) -> None:
        fields = {"group_id": self.group.group, "generation_id": self.generation, "member_id": self.id}
        self.player.ask(ApiKey.HEARTBEAT, 4, fields, self._beaten)

    def _beaten(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif answer.error_code:
            raise BenchError(f"a member was put out: {ErrorCode(answer.error_code).name}")
        else:
            self.group.stage.later(BEAT_S, self.beat)


class ConsumerGroup:
    """Members of one group in the server-side protocol; each takes what it is given and gives back what it must."""

    def __init__(self, stage: Stage, group: str, topic: str, partitions: int, members: int) -> None:
        self.stage = stage
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.members = [ConsumerMember(self, f"member-{number:05}", stage.player()) for number in range(members)]

    @property
    def settled(self) -> bool:
        """Everybody is in the same epoch and has a fair share, and all partitions have an owner."""
        if len({member.epoch for member in self.members}) != 1:
            return False
        counts = [member.count for member in self.members]
        return sum(counts) == self.partitions and max(counts) - min(counts) <= 1


class ConsumerMember:
    def __init__(self, group: ConsumerGroup, name: str, player: Player) -> None:
        self.group = group
        self.id = name
        self.player = player
        self.epoch = 0
        self.owned: list[dict[str, Any]] = []
        self.beat()

    @property
    def count(self) -> int:
        return sum(len(each["partitions"]) for each in self.owned)

    def beat(self, *, says: bool = False) -> None:
        """`says`: what it owns now, since that has changed."""
        more: dict[str, Any] = {"subscribed_topic_names": [self.group.topic]} if self.epoch == 0 else {}
        if says:
            more["topic_partitions"] = self.owned
        fields = heartbeat_fields(self.group.group, self.id, self.epoch, **more)
        self.player.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields, self._beaten)

    def _beaten(self, answer: Any) -> None:
        if answer.error_code in LATER:
            self.group.stage.later(RETRY_S, self.beat)
            return
        if answer.error_code:
            raise BenchError(f"a member was put out: {ErrorCode(answer.error_code).name} {answer.error_message}")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [
                {"topic_id": each.topic_id, "partitions": list(each.partitions)}
                for each in answer.assignment.topic_partitions
            ]
            self.beat(says=True)
        else:
            self.group.stage.later(answer.heartbeat_interval_ms / 1000, self.beat)
