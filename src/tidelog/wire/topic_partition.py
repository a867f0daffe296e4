"""A partition and its topic, as a value: what requests, checkpoints, committed offsets and logs are about.

Plain tuples: requests make one for each of their partitions, and coordinators keep hundreds of thousands. A named tuple
takes several times as long to make, and the garbage collector never stops looking at it.
"""

from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""The topic's name, and the partition's index."""
TopicIdPartition: TypeAlias = tuple[bytes, int]
"""The topic's id instead of its name: another topic of the name is another partition."""
AnyTopicPartition: TypeAlias = tuple[str | bytes, int]
"""As a request names it: by name, or by id in the versions that have ids."""
