"""Members that scripts play: each on a connection of its own, since JoinGroup and SyncGroup wait for the others."""

from collections.abc import Mapping
from random import Random
from typing import Any

from tests.group_requests import assignment, find_coordinator, join_fields, subscription
from tests.kafka.same_answers.side import Side
from tests.raw import Connection
from tidelog.wire.keys import ApiKey

MEMBER_ID_REQUIRED = 79


def new_group(side: Side, rng: Random, kind: str = "group") -> str:
    """The name of a group that nobody has used, with a coordinator that is ready."""
    name = f"{kind}-{rng.getrandbits(32):08x}"
    find_coordinator(side.connection, name)
    return name


class Member:
    """A classic member of a group, in one version of its requests; `id` and `generation` as it was told last."""

    def __init__(self, side: Side, group: str, topic: str, name: str, *, instance: str | None = None) -> None:
        self.side = side
        self.group = group
        self.topic = topic
        self.name = name
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.connection = Connection(side.bootstrap, client_id=name)
        self._awaited: tuple[ApiKey, int, int, str] | None = None

    def close(self) -> None:
        self.connection.close()

    def send(self, key: ApiKey, version: int, fields: Mapping[str, Any], note: str = "") -> None:
        """Ask without waiting."""
        self.side.asked.add((key, version))
        label = f"{key.name} v{version} {self.name} {note}".rstrip()
        self._awaited = (key, version, self.connection.send(key, version, fields), label)

    def answer(self) -> Any:
        """The answer to what was sent, noted down."""
        assert self._awaited is not None
        key, version, correlation_id, label = self._awaited
        response = self.connection.answer(key, version, correlation_id)
        if key == ApiKey.JOIN_GROUP and response.error_code in (0, MEMBER_ID_REQUIRED):
            self.id, self.generation = response.member_id, response.generation_id
        self.side.note(label, self.side.normaliser.response(key, response), key)
        return response

    def ask(self, key: ApiKey, version: int, fields: Mapping[str, Any], note: str = "") -> Any:
        self.send(key, version, fields, note)
        return self.answer()

    def join_fields(self, version: int, **more: Any) -> dict[str, Any]:
        fields = join_fields(self.group, self.topic, self.id)
        if version < 1:
            del fields["rebalance_timeout_ms"]
        if version >= 5:
            fields["group_instance_id"] = self.instance
        return fields | more

    def send_join(self, version: int, note: str = "", **more: Any) -> None:
        """JoinGroup, and once more with the id that the broker made, where it wants that."""
        if version >= 4 and not self.id and self.instance is None:
            self.ask(ApiKey.JOIN_GROUP, version, self.join_fields(version, **more), "for an id")
        self.send(ApiKey.JOIN_GROUP, version, self.join_fields(version, **more), note)

    def join(self, version: int = 9, note: str = "", **more: Any) -> Any:
        self.send_join(version, note, **more)
        return self.answer()

    def sync_fields(
        self, version: int, parts: Mapping[str, tuple[int, ...]] | None = None, **more: Any
    ) -> dict[str, Any]:
        given = [
            {"member_id": member, "assignment": assignment(self.topic, *partitions)}
            for member, partitions in (parts or {}).items()
        ]
        fields: dict[str, Any] = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        fields["assignments"] = given
        if version >= 3:
            fields["group_instance_id"] = self.instance
        if version >= 5:
            fields |= {"protocol_type": "consumer", "protocol_name": "range"}
        return fields | more

    def sync(
        self, version: int = 5, parts: Mapping[str, tuple[int, ...]] | None = None, note: str = "", **more: Any
    ) -> Any:
        return self.ask(ApiKey.SYNC_GROUP, version, self.sync_fields(version, parts, **more), note)

    def heartbeat(self, version: int = 4, note: str = "", **more: Any) -> Any:
        fields: dict[str, Any] = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        if version >= 3:
            fields["group_instance_id"] = self.instance
        return self.ask(ApiKey.HEARTBEAT, version, fields | more, note)

    def leave(self, version: int = 5, note: str = "", **more: Any) -> Any:
        if version < 3:
            fields: dict[str, Any] = {"group_id": self.group, "member_id": self.id}
        else:
            fields = {"group_id": self.group, "members": [{"member_id": self.id, "group_instance_id": self.instance}]}
        return self.ask(ApiKey.LEAVE_GROUP, version, fields | more, note)

    def enter(self, join_version: int = 9, sync_version: int = 5, *partitions: int) -> None:
        """Join alone, and take these partitions."""
        self.join(join_version)
        self.sync(sync_version, {self.id: partitions})


def other_protocol(topic: str) -> list[dict[str, Any]]:
    return [{"name": "roundrobin", "metadata": subscription(topic)}]
