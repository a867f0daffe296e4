"""Scripts of requests, one module an area. Each is a function `(side, rng)`; see `side.py`."""

from collections.abc import Callable
from random import Random

from tests.kafka.same_answers.scripts import admin, configs, fetch, frames, inspect, mixed, offsets, produce, sequences
from tests.kafka.same_answers.side import Side

Script = Callable[[Side, Random], None]

SCRIPTS: dict[str, Script] = {
    f"{module.__name__.rpartition('.')[2]}: {script.__name__.replace('_', ' ')}": script
    for module in (produce, sequences, fetch, offsets, admin, configs, inspect, frames, mixed)
    for script in module.SCRIPTS
}
