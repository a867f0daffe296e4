"""What stands behind the names of the simulated disk: contents twice, as processes see them and on the platter.

The difference between the two is what a power loss may forget, tear or keep.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from tidelog.sim.world.random import SimRandom

SECTOR_BYTES = 512


@dataclass(slots=True, eq=False)
class FileNode:
    """A file. `data` is the page cache; `durable` the platter; they agree on [0, clean) unless a sync failed, or what
    lies in `over` was written over."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    clean: int = 0
    modified_ms: int = 0
    over: range = range(0)
    identity: int | None = None

    def append(self, piece: bytes | bytearray | memoryview) -> None:
        self.data += piece

    def write_at(self, pos: int, piece: bytes | bytearray | memoryview) -> None:
        end = pos + len(piece)
        assert pos <= len(self.data), f"a write at {pos} leaves a hole behind {len(self.data)}"
        self.data[pos:end] = piece
        if pos < self.clean:
            over = range(pos, min(end, self.clean))
            self.over = range(min(self.over.start, over.start), max(self.over.stop, over.stop)) if self.over else over

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data += bytes(size - len(self.data))
        self.clean = min(self.clean, size)
        self.over = range(self.over.start, min(self.over.stop, size))

    @property
    def dirty(self) -> bool:
        return self.clean != len(self.data) or len(self.durable) != len(self.data) or bool(self.over)

    def sync(self) -> None:
        """What is dirty reaches the platter. Pages that a failed sync lost are clean: they don't."""
        clean = self.clean
        if len(self.durable) < clean:
            self.durable += bytes(clean - len(self.durable))
        self.durable[clean:] = self.data[clean:]
        self.durable[self.over.start : self.over.stop] = self.data[self.over.start : self.over.stop]
        self.clean, self.over = len(self.data), range(0)

    def fail_sync(self, random: SimRandom, *, keep_cache: bool) -> None:
        """Some of what was dirty reached the platter, the rest is lost, and the kernel calls all of it clean.

        `keep_cache`: readers go on seeing the lost pages until the machine restarts; otherwise they see the platter's.
        """
        size = len(self.data)
        self.durable = self.after_crash(random)
        if not keep_cache:  # the size stays: what is lost reads as zeros
            self.data = bytearray(self.durable[:size])
            self.data += bytes(size - len(self.data))
        self.clean, self.over = size, range(0)

    def after_crash(self, random: SimRandom) -> bytearray:
        """What the platter may hold when the power goes: the old, the new, or the new cut or riddled with holes.

        Of what was written over each sector is the old or the new one.
        """
        if not self.dirty:
            return bytearray(self.durable)
        if self.over:
            return self._mixed(random)
        fate = random.weighted((("forgotten", 4), ("whole", 2), ("cut", 3), ("sectors", 2)))
        if fate == "forgotten":
            return bytearray(self.durable)
        new = bytearray(self.data)
        if fate == "whole" or self.clean == len(new):
            return new
        if fate == "cut":
            del new[random.random_int(self.clean, len(new)) :]
            return new
        first = -(-self.clean // SECTOR_BYTES) * SECTOR_BYTES
        for start in range(first, len(new), SECTOR_BYTES):
            if random.chance(0.5):
                end = min(start + SECTOR_BYTES, len(new))
                new[start:end] = bytes(end - start)
        return new

    def _mixed(self, random: SimRandom) -> bytearray:
        """Of what was written over, each sector is the old or the new one: all of a kind, the first few new, or any."""
        over, self.over = self.over, range(0)
        found = self.after_crash(random)  # but for what was written over
        self.over = over
        old = self.durable + bytes(max(0, over.stop - len(self.durable)))
        sectors = range(over.start // SECTOR_BYTES * SECTOR_BYTES, over.stop, SECTOR_BYTES)
        fate = random.weighted((("old", 3), ("new", 2), ("first", 3), ("any", 3)))
        new_ones = random.random_int(0, len(sectors))
        for number, start in enumerate(sectors):
            first, end = max(start, over.start), min(start + SECTOR_BYTES, over.stop)
            is_new = {"old": False, "new": True, "first": number < new_ones}.get(fate)
            if random.chance(0.5) if is_new is None else is_new:
                found += bytes(max(0, first - len(found)))
                found[first:end] = self.data[first:end]
            elif first < len(found):
                end = min(end, len(found))
                found[first:end] = old[first:end]
        return found


@dataclass(slots=True, eq=False)
class FolderNode:
    """A folder. `names` is what processes see; `durable` what the platter lists; `changes` lead from this to that."""

    names: "dict[str, Node]" = field(default_factory=dict[str, "Node"])
    durable: "dict[str, Node]" = field(default_factory=dict[str, "Node"])
    changes: "list[dict[str, Node | None]]" = field(default_factory=list["dict[str, Node | None]"])

    def change(self, changed: "dict[str, Node | None]") -> None:
        """Names linked (a node) or unlinked (None), all of them at once or none."""
        self.changes.append(changed)
        _apply(self.names, changed)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()

    def after_crash(self, random: SimRandom) -> "dict[str, Node]":
        """The durable names and the first few of the changes since: a file system's journal keeps their order."""
        names = dict(self.durable)
        for changed in self.changes[: random.random_int(0, len(self.changes))]:
            _apply(names, changed)
        return names


Node: TypeAlias = FileNode | FolderNode


def _apply(names: "dict[str, Node]", changed: "dict[str, Node | None]") -> None:
    for name, node in changed.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def crashed(node: Node, random: SimRandom) -> Node:
    """The node as it is found after the power came back: a new one, so that nothing from before can touch it."""
    if isinstance(node, FileNode):
        data = node.after_crash(random)
        return FileNode(bytearray(data), data, len(data), node.modified_ms, identity=node.identity)
    names = {name: crashed(child, random) for name, child in sorted(node.after_crash(random).items())}
    return FolderNode(names, dict(names))
