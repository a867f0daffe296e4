"""Topic names: which are legal, which collide, which stay as they are."""

from tidelog.controller.bounds import NAME_CHARACTERS_MAX
from tidelog.metadata.image import ClusterImage, unified_name
from tidelog.wire.errors import ErrorCode, KafkaError

METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
COORDINATOR_TOPICS = {
    "__consumer_offsets": "the committed offsets of all groups: delete groups one by one, with `tidelog group delete`",
    "__transaction_state": "the state of all transactions: those that are open could never be ended without it",
}
"""What they hold, and what follows from it. A key's partition is a hash over the number of them, so that must stay."""

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def why_invalid(name: str) -> str | None:
    """What is wrong with a topic's name, or None. A legal name is also a safe folder name."""
    if not name:
        return "Topic name is invalid: it is empty"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"Topic name is invalid: it has {len(name)} characters, {NAME_CHARACTERS_MAX} are allowed"
    if not _LEGAL.issuperset(name):
        return f"Topic name is invalid: '{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def colliding(image: ClusterImage, name: str) -> str | None:
    """An existing topic whose name differs only in '.' against '_': metrics of the two could not be told apart."""
    unified = unified_name(name)
    others = () if unified is None else image.unified_names.get(unified, ())
    return others[0] if others else None


def check_growth(name: str, partitions: int) -> None:
    """KafkaError for a topic of the coordinators: with more partitions, its keys would be looked for elsewhere."""
    if name in COORDINATOR_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"The internal topic {name} has {partitions} partitions, and keeps them: where the state of a group or of "
            "a transactional id is depends on their number.",
        )


def check_deletion(name: str) -> None:
    """KafkaError for a topic of the coordinators."""
    if name in COORDINATOR_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"The internal topic {name} can't be deleted. It holds {COORDINATOR_TOPICS[name]}.",
        )
