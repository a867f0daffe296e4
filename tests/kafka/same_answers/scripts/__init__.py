"""Scripts of requests, one module an area. Each is a function `(side, rng)`; see `side.py`."""

from collections.abc import Callable
from random import Random
from types import ModuleType

from tests.kafka.same_answers.scripts import (
    admin,
    configs,
    fetch,
    fetch_sessions,
    frames,
    group_admin,
    group_classic,
    group_consumer,
    group_hands,
    group_mixed,
    group_offsets,
    inspect,
    mixed,
    offsets,
    produce,
    records,
    sequences,
    transactions,
    transactions_mixed,
    transactions_pipelined,
)
from tests.kafka.same_answers.side import Side

Script = Callable[[Side, Random], None]


def named(*modules: ModuleType) -> dict[str, Script]:
    """The scripts of these areas, each under a name that reads well."""
    return {
        f"{module.__name__.rpartition('.')[2]}: {script.__name__.replace('_', ' ')}": script
        for module in modules
        for script in module.SCRIPTS
    }


SCRIPTS = named(produce, sequences, fetch, fetch_sessions, offsets, admin, configs, inspect, frames, mixed)
GROUPS = named(group_offsets, group_classic, group_consumer, group_admin, group_mixed, group_hands)
SCRIPTS |= GROUPS
SCRIPTS |= named(transactions, transactions_mixed, transactions_pipelined)
WALKING = named(records)
"""Scripts that tell who looks into every record (`tidelog.validate=records`) from who doesn't."""
