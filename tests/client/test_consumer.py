"""Reading: from a place to the end, so many, some partitions, several topics."""

import pytest

from tidelog.client import Admin, ClientError, Producer, Start, read


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """0 to 4 in the first partition, 5 to 7 in the second."""
    with Producer(bootstrap) as producer:
        for number in range(8):
            producer.send(topic, b"%d" % number, partition=int(number > 4), timestamp_ms=1000 + number)
    return topic


def found(bootstrap: str, topic: str | list[str], **more: object) -> list[bytes | None]:
    return sorted(each.value or b"" for each in read(bootstrap, topic, stop_at_end=True, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, b"01234567"),
        (Start("beginning"), b"01234567"),
        (Start("end"), b""),
        (Start("offset", 3), b"34"),
        (Start("last", 2), b"3467"),
        (Start("time", 1004), b"4567"),
    ],
    ids=["none", "beginning", "end", "offset", "last", "time"],
)
def test_reading_begins_where_it_is_told(bootstrap: str, filled: str, start: Start | None, expected: bytes) -> None:
    chosen = [0] if start is not None and start.kind == "offset" else None
    assert b"".join(found(bootstrap, filled, start=start, partitions=chosen)) == expected  # type: ignore[arg-type]


def test_partitions_may_be_chosen_and_have_to_be_there(bootstrap: str, filled: str) -> None:
    assert found(bootstrap, filled, partitions=[1]) == [b"5", b"6", b"7"]
    with pytest.raises(ClientError, match="partition 9"):
        found(bootstrap, filled, partitions=[9])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_no_more_are_read_than_were_asked_for(bootstrap: str, filled: str, count: int) -> None:
    assert len(list(read(bootstrap, filled, count=count))) == count


def test_several_topics_are_read_at_once(bootstrap: str, filled: str) -> None:
    Admin(bootstrap).create_topic(f"{filled}-more", 1)
    with Producer(bootstrap) as producer:
        producer.send(f"{filled}-more", b"8")
    assert b"".join(found(bootstrap, [filled, f"{filled}-more"])) == b"012345678"  # type: ignore[arg-type]


def test_what_comes_after_reading_began_is_not_waited_for(bootstrap: str, filled: str) -> None:
    reading = read(bootstrap, filled, partitions=[0], stop_at_end=True)
    first = next(reading)
    with Producer(bootstrap) as producer:
        producer.send(filled, b"late", partition=0)
    assert [first.value, *(each.value for each in reading)] == [b"0", b"1", b"2", b"3", b"4"]


def test_who_waits_at_the_end_is_told_that_nothing_comes_and_gets_what_comes(bootstrap: str, filled: str) -> None:
    idle: list[int] = []

    def send_more() -> None:
        idle.append(1)
        if len(idle) == 1:
            with Producer(bootstrap) as producer:
                producer.send(filled, b"next", partition=0)

    reading = read(bootstrap, filled, start=Start("end"), count=1, poll_s=0.05, idle=send_more)
    assert [each.value for each in reading] == [b"next"]
    assert idle


def test_a_topic_that_is_not_there_is_told(bootstrap: str, nobody: str) -> None:
    with pytest.raises(ClientError, match="nowhere"):
        list(read(bootstrap, "nowhere", stop_at_end=True))
    with pytest.raises(ClientError, match="no broker answers"):
        list(read(nobody, "nowhere"))
