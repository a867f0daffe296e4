"""Members of classic groups as raw requests, on a harbour: what any client may send, and what none does."""

from collections.abc import Mapping
from typing import Any

from tests.apis.harbour import Asked, Harbour
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


def open_harbour(settings: Mapping[str, str] | None = None, **more: Any) -> Harbour:
    """A broker whose offsets topic is there."""
    harbour = Harbour({**SETTINGS, **(settings or {})}, **more)
    found = harbour.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
    assert found.error_code == 0
    return harbour


def join_fields(member_id: str = "", *, group: str = "g", instance: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        **more,
    }


def send_join(harbour: Harbour, member_id: str = "", version: int = 9, **more: Any) -> Asked:
    return harbour.send(ApiKey.JOIN_GROUP, version, join_fields(member_id, **more))


def join(harbour: Harbour, member_id: str = "", version: int = 9, **more: Any) -> Any:
    """The answer, waited for."""
    return harbour.ask(ApiKey.JOIN_GROUP, version, join_fields(member_id, **more))


def become_member(harbour: Harbour, **more: Any) -> tuple[str, Asked]:
    """A new dynamic member: its id, and its JoinGroup, which waits."""
    required = join(harbour, **more)
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED, required
    return required.member_id, send_join(harbour, required.member_id, **more)


def sync_fields(
    member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, *, group: str = "g", **more: Any
) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": one, "assignment": data} for one, data in (assignments or {}).items()],
        **more,
    }


def send_sync(
    harbour: Harbour, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **more: Any
) -> Asked:
    return harbour.send(ApiKey.SYNC_GROUP, 5, sync_fields(member_id, generation, assignments, **more))


def sync(
    harbour: Harbour, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **more: Any
) -> Any:
    return harbour.ask(ApiKey.SYNC_GROUP, 5, sync_fields(member_id, generation, assignments, **more))


def beat(harbour: Harbour, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> int:
    fields = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance,
    }
    return harbour.ask(ApiKey.HEARTBEAT, 4, fields).error_code


def leave(harbour: Harbour, *members: Mapping[str, Any], group: str = "g", version: int = 5) -> Any:
    return harbour.ask(ApiKey.LEAVE_GROUP, version, {"group_id": group, "members": list(members)})


def stable(harbour: Harbour, count: int = 1, **more: Any) -> list[str]:
    """A stable group of new members, each assigned its own id; the leader first."""
    joining = [become_member(harbour, **more) for _ in range(count)]
    harbour.settle()
    answers = {member_id: harbour_wait(harbour, asked) for member_id, asked in joining}
    leader = next(iter(answers.values())).leader
    generation = answers[leader].generation_id
    group = more.get("group", "g")
    parts = {member_id: member_id.encode() for member_id in answers}
    syncing = {
        member_id: send_sync(harbour, member_id, generation, parts if member_id == leader else None, group=group)
        for member_id in answers
    }
    for member_id, asked in syncing.items():
        assert harbour_wait(harbour, asked).assignment == member_id.encode()
    return sorted(answers, key=lambda member_id: member_id != leader)


def harbour_wait(harbour: Harbour, asked: Asked, seconds: float = 30.0) -> Any:
    harbour.timeline.run_until(lambda: asked.done, harbour.timeline.now + seconds)
    return asked.response
