"""The hash by which a change of topics is noticed is Apache Kafka's, so that neither assigns anew after the other."""

import pytest

from tests.coordinator.consumer.harness import image_of
from tidelog.coordinator.group.consumer.state import Resolved, Subscription
from tidelog.coordinator.group.consumer.topics import group_hash, ids_of
from tidelog.coordinator.group.consumer.xxh3 import xxh3_64

PATTERN = bytes(place * 31 % 251 for place in range(5000))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 0x2D06800538D394C2),
        (1, 0xC44BDFF4074EECDB),
        (3, 0x3698B80191E625F9),
        (4, 0x2E4AC2F1C52157FC),
        (8, 0x60E1BAA91347A1F2),
        (9, 0x9C88FC32C37B56CB),
        (16, 0x8626370B70D8AC70),
        (17, 0xAA7A5F479409A664),
        (32, 0x1ED9BB5B41379435),
        (33, 0x38FF1A94BB31AC15),
        (64, 0x5A3C985DDF6E1A7C),
        (65, 0x5D4779001B0690F8),
        (96, 0x67D999F1345E5290),
        (97, 0xC80A1025FFC8C91D),
        (128, 0x040E97756280237A),
        (129, 0xF0F4DC98CE461DFD),
        (160, 0xF20C3F8E3A3DFC0D),
        (240, 0x8ACECB90BE72B9C3),
        (241, 0x82D3EBF50A3E9C42),
        (1024, 0xCBDFF56B050F2C1C),
        (1025, 0x9BABF50235CEA0A0),
        (2048, 0xEEF46C3D948C544E),
        (5000, 0xA092D73116291201),
    ],
)
def test_xxh3_of_every_range_of_sizes(size: int, expected: int) -> None:
    assert xxh3_64(PATTERN[:size]) == expected


def test_a_group_without_topics_has_no_hash() -> None:
    image = image_of({"tides": 3})
    assert group_hash([], {}, image) == 0
    assert group_hash([Subscription(("elsewhere",))], {}, image) == 0


def test_the_hash_is_the_one_that_apache_kafka_computes() -> None:
    """Computed with Apache Kafka's Utils.computeTopicHash and computeGroupHash for the same topics."""
    image = image_of({"tides": 3, "wïnds": 2})
    assert group_hash([Subscription(("tides",))], {}, image) == 372243394840468934
    assert group_hash([Subscription(("tides", "wïnds"))], {}, image) == -5632919930210028780
    racks = image_of({"tides": 3}, racks=("north", "süd"))
    assert group_hash([Subscription(("tides",))], {}, racks) == 836125628040478445


def test_what_changes_the_hash() -> None:
    subscribed = [Subscription(("tides",))]
    first = group_hash(subscribed, {}, image_of({"tides": 3, "winds": 1}))
    assert group_hash(subscribed, {}, image_of({"tides": 3, "winds": 9})) == first, "another topic"
    assert group_hash(subscribed, {}, image_of({"tides": 4})) != first, "more partitions"
    assert group_hash(subscribed, {}, image_of({"tides": 3}, racks=("north",))) != first, "racks"
    assert group_hash([*subscribed, Subscription(("winds",))], {}, image_of({"tides": 3, "winds": 1})) != first


def test_names_and_what_an_expression_matched_go_together() -> None:
    image = image_of({"tides": 3, "winds": 1, "waves": 1})
    resolved = {"w.*": Resolved(frozenset({"winds", "waves", "gone"}), 1, 0)}
    both = Subscription(("tides",), "w.*")
    assert ids_of(both, resolved, image) == {topic.id for topic in image.topics.values()}
    assert ids_of(both, {}, image) == {image.topics["tides"].id}, "an expression that isn't resolved names nothing"
    assert ids_of(Subscription((), "w.*"), resolved, image) == {image.topics[name].id for name in ("winds", "waves")}
