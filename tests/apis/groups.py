"""Members of classic groups as raw requests, on a sim_broker: what any client may send, and what none does."""

from collections.abc import Mapping
from typing import Any

from tests.apis.sim_broker import Asked, SimBroker
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


def open_harbour(settings: Mapping[str, str] | None = None, **more: Any) -> SimBroker:
    """A broker whose offsets topic is there."""
    sim_broker = SimBroker({**SETTINGS, **(settings or {})}, **more)
    found = sim_broker.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
    assert found.error_code == 0
    return sim_broker


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


def send_join(sim_broker: SimBroker, member_id: str = "", version: int = 9, **more: Any) -> Asked:
    return sim_broker.send(ApiKey.JOIN_GROUP, version, join_fields(member_id, **more))


def join(sim_broker: SimBroker, member_id: str = "", version: int = 9, **more: Any) -> Any:
    """The answer, waited for."""
    return sim_broker.ask(ApiKey.JOIN_GROUP, version, join_fields(member_id, **more))


def become_member(sim_broker: SimBroker, **more: Any) -> tuple[str, Asked]:
    """A new dynamic member: its id, and its JoinGroup, which waits."""
    required = join(sim_broker, **more)
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED, required
    return required.member_id, send_join(sim_broker, required.member_id, **more)


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
    sim_broker: SimBroker, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **more: Any
) -> Asked:
    return sim_broker.send(ApiKey.SYNC_GROUP, 5, sync_fields(member_id, generation, assignments, **more))


def sync(
    sim_broker: SimBroker, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None, **more: Any
) -> Any:
    return sim_broker.ask(ApiKey.SYNC_GROUP, 5, sync_fields(member_id, generation, assignments, **more))


def beat(
    sim_broker: SimBroker, member_id: str, generation: int, *, group: str = "g", instance: str | None = None
) -> int:
    fields = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance,
    }
    return sim_broker.ask(ApiKey.HEARTBEAT, 4, fields).error_code


def leave(sim_broker: SimBroker, *members: Mapping[str, Any], group: str = "g", version: int = 5) -> Any:
    return sim_broker.ask(ApiKey.LEAVE_GROUP, version, {"group_id": group, "members": list(members)})


def stable(sim_broker: SimBroker, count: int = 1, **more: Any) -> list[str]:
    """A stable group of new members, each assigned its own id; the leader first."""
    joining = [become_member(sim_broker, **more) for _ in range(count)]
    sim_broker.settle()
    answers = {member_id: harbour_wait(sim_broker, asked) for member_id, asked in joining}
    leader = next(iter(answers.values())).leader
    generation = answers[leader].generation_id
    group = more.get("group", "g")
    parts = {member_id: member_id.encode() for member_id in answers}
    syncing = {
        member_id: send_sync(sim_broker, member_id, generation, parts if member_id == leader else None, group=group)
        for member_id in answers
    }
    for member_id, asked in syncing.items():
        assert harbour_wait(sim_broker, asked).assignment == member_id.encode()
    return sorted(answers, key=lambda member_id: member_id != leader)


def harbour_wait(sim_broker: SimBroker, asked: Asked, seconds: float = 30.0) -> Any:
    sim_broker.timeline.run_until(lambda: asked.done, sim_broker.timeline.now + seconds)
    return asked.response
