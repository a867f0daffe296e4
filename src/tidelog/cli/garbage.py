"""Collections of garbage that hold nobody up.

What refers to itself in a circle is found by looking at every object, and Python does so on the loop's thread whenever
enough of them were made: a request for 200,000 partitions was collections for half of its time, the longest of them a
tenth of a second. Whoever is done lets go in this code, so that there is little such garbage. Young objects are looked
at as always. Old ones are looked at once in a while where they are few; where they are many, they are what the broker
knows (topics, groups, offsets), and are put out of the collector's sight.
"""

import gc
from typing import Protocol

YOUNG_MAX = 10_000
"""Objects made, and not let go of, after which garbage among the young is looked for."""
MIDDLE_EVERY = 2
"""So many of those later, also among what has lived through one: at most 30,000 objects, some 3 ms."""
NEVER = 1_000_000_000
OLD_MAX = 200_000
"""To look at more takes more than some 20 ms."""
LOOK_S = 60.0


class Later(Protocol):
    def call_later(self, delay_s: float, callback: "Callback") -> object: ...


class Callback(Protocol):
    def __call__(self) -> None: ...


def begin(loop: Later) -> None:
    """From now on, when what the start made stands: later collections needn't look at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, MIDDLE_EVERY, NEVER)
    loop.call_later(LOOK_S, lambda: _look(loop))


def _look(loop: Later) -> None:
    if len(gc.get_objects(generation=2)) <= OLD_MAX:
        gc.collect()
    else:
        gc.freeze()
    loop.call_later(LOOK_S, lambda: _look(loop))
