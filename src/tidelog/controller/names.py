"""Topic names: which are legal, which collide."""

from collections.abc import Iterable

NAME_CHARACTERS_MAX = 249
METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

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


def colliding(name: str, existing: Iterable[str]) -> str | None:
    """An existing topic whose name differs only in '.' against '_': metrics of the two could not be told apart."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    return next((other for other in existing if len(other) == len(name) and other.replace(".", "_") == unified), None)
