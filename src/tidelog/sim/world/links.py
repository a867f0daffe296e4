"""The ways between addresses: which are cut, in which direction, and which are slow.

What is sent over a cut way waits, as TCP sends again what isn't acknowledged, and arrives in its order once the way is
open; that a process at the other end died is noticed then, too. A split itself breaks no connection.
"""

from collections import deque
from collections.abc import Callable

from tidelog.sim.world.socket import SimSocket

Arrival = Callable[[], None]


class Links:
    def __init__(self) -> None:
        self._cut: set[tuple[str, str]] = set()
        self._slow: dict[tuple[str, str], float] = {}
        self._held: dict[SimSocket, deque[Arrival]] = {}

    def cut(self, source: str, target: str) -> None:
        """From now on nothing that `source` sends arrives at `target`; the other direction is another way."""
        self._cut.add((source, target))

    def slow(self, source: str, target: str, factor: float) -> None:
        """What `source` sends takes so many times as long; 1 is the usual time."""
        self._slow[source, target] = factor

    def mend(self, source: str, target: str) -> None:
        self._cut.discard((source, target))
        self._slow.pop((source, target), None)

    def mend_all(self) -> None:
        self._cut.clear()
        self._slow.clear()

    def factor(self, target: SimSocket) -> float:
        if not self._slow or target.peer is None:
            return 1.0
        return self._slow.get((target.peer.address, target.address), 1.0)

    def arrive(self, target: SimSocket, arrival: Arrival) -> None:
        """Let it happen at `target`, or hold it where the way there is cut; behind what is held already."""
        held = self._held.get(target)
        if held is not None:
            held.append(arrival)
        elif self.is_cut(target):
            self._held[target] = deque([arrival])
        else:
            arrival()

    def forget(self, target: SimSocket) -> None:
        """What is held for it never arrives."""
        held = self._held.get(target)
        if held is not None:
            held.clear()

    def released(self) -> list[tuple[SimSocket, deque[Arrival]]]:
        """What was held on ways that are open again, in the order in which it was held."""
        free = [target for target in self._held if not self.is_cut(target)]
        return [(target, self._held.pop(target)) for target in free]

    def is_cut(self, target: SimSocket) -> bool:
        return bool(self._cut) and target.peer is not None and (target.peer.address, target.address) in self._cut
