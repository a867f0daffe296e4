"""Two transcripts side by side: what differs, step by step, but for what is allowed."""

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.kafka.same_answers.allowed import ALLOWED, Difference
from tests.kafka.same_answers.scripts import Script
from tests.kafka.same_answers.side import Side, Step

MISSING = "<not there>"
UNKNOWN_SERVER_ERROR = -1


@dataclass(frozen=True, slots=True)
class Found:
    """One place where two answers differ."""

    step: int
    label: str
    key: int
    path: str
    ours: Any
    theirs: Any
    theirs_failed: bool = False
    """Somewhere in its answer Kafka says UNKNOWN_SERVER_ERROR."""

    def __str__(self) -> str:
        return f"step {self.step}, {self.label}\n    {self.path}: {_short(self.ours)} instead of {_short(self.theirs)}"


def play(script: Script, side: Side, seed: int) -> list[Step]:
    """The script's transcript on one side; the side's connection is closed afterwards."""
    side.transcript = []
    try:
        script(side, Random(f"{seed} {script.__module__} {script.__name__}"))
    finally:
        side.close()
    return side.transcript


def differences(ours: list[Step], theirs: list[Step], allowed: tuple[Difference, ...] = ALLOWED) -> list[Found]:
    """Every place where the answers differ and no allowed difference says why."""
    found: list[Found] = []
    for place, (our, their) in enumerate(zip(ours, theirs, strict=False)):
        if our.label != their.label:
            found.append(Found(place, our.label, our.key, "request", our.label, their.label))
            break
        step_found: list[tuple[str, Any, Any]] = []
        _walk("", our.answer, their.answer, step_found)
        failed = _fails(their.answer)
        found += [Found(place, our.label, our.key, path, a, b, failed) for path, a, b in step_found]
    if len(ours) != len(theirs):
        found.append(Found(min(len(ours), len(theirs)), "the end", -1, "steps", len(ours), len(theirs)))
    return [difference for difference in found if not any(rule.covers(difference) for rule in allowed)]


def _walk(path: str, ours: Any, theirs: Any, found: list[tuple[str, Any, Any]]) -> None:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in {**ours, **theirs}:
            _walk(f"{path}.{name}", ours.get(name, MISSING), theirs.get(name, MISSING), found)
    elif isinstance(ours, list) and isinstance(theirs, list):
        names = _names(ours), _names(theirs)
        if names[0] is not None and names[1] is not None:
            by_name = dict(zip(names[0], ours, strict=True)), dict(zip(names[1], theirs, strict=True))
            for name in {**by_name[0], **by_name[1]}:
                _walk(f"{path}[{name}]", by_name[0].get(name, MISSING), by_name[1].get(name, MISSING), found)
        elif len(ours) != len(theirs):
            found.append((path, ours, theirs))
        else:
            for place, (our, their) in enumerate(zip(ours, theirs, strict=True)):
                _walk(f"{path}[{place}]", our, their, found)
    elif ours != theirs:
        found.append((path.lstrip("."), ours, theirs))


def _fails(answer: Any) -> bool:
    if isinstance(answer, dict):
        return answer.get("error_code") == UNKNOWN_SERVER_ERROR or any(map(_fails, answer.values()))
    return isinstance(answer, list) and any(map(_fails, answer))


def _names(items: list[Any]) -> list[Any] | None:
    """What the items of a list are called, where each has a name or number of its own."""
    for field in ("name", "api_key"):
        names = [item.get(field) if isinstance(item, dict) else None for item in items]
        if all(name is not None for name in names) and len(set(names)) == len(names):
            return names
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "..."
