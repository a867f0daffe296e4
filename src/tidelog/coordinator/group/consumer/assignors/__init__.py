"""The assignors that the broker runs for groups of the consumer protocol: who should have which partition."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tidelog.coordinator.group.consumer.assignors.range import assign_range
from tidelog.coordinator.group.consumer.assignors.spec import Candidate
from tidelog.coordinator.group.consumer.assignors.uniform import assign_uniform
from tidelog.coordinator.group.consumer.state import Partitions
from tidelog.env.slices import Steps

Assign: TypeAlias = Callable[[Sequence[Candidate], Mapping[bytes, int]], Steps[dict[str, Partitions]]]
"""From the members and the partition counts of the topics, each member's partitions; all members are in the result."""

ASSIGNORS: dict[str, Assign] = {"uniform": assign_uniform, "range": assign_range}
"""By the name that clients ask for."""
