"""The active controller is killed or frozen while topics are made and deleted through any broker.

What was acknowledged is there afterwards, on every node; what was deleted doesn't come back; and a controller that
wakes up when another one leads decides nothing any more.
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.nodes import BOTH, BROKER, CONTROLLER, Node, Nodes, quorum_of, wait_for
from tests.raw import ClosedError, Connection
from tests.stories.cluster_load import (
    Confluent,
    KafkaPython,
    TopicMaker,
    account_for,
    create_once,
    creation,
    until_decided,
)
from tidelog.wire.errors import ErrorCode
from tidelog.wire.keys import ApiKey

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
"""Of kafka-python, whose connections fail here as they are meant to."""

SHAPES: dict[str, dict[int, str]] = {
    "three controllers and three brokers": {id: CONTROLLER if id < 4 else BROKER for id in range(1, 7)},
    "three combined nodes": dict.fromkeys(range(1, 4), BOTH),
}
DECIDES_S_MAX = 3.0
"""From kill -9 of the active controller to the first change that its successor acknowledges."""


class Story:
    """One cluster under load, whose active controller is taken away again and again."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.makers = [
            TopicMaker("confluent", Confluent(nodes.bootstrap)).start(),
            TopicMaker("kafka-python", KafkaPython(nodes.bootstrap)).start(),
        ]
        self.rounds = 0
        self.took_s: list[float] = []
        """From each kill to the first acknowledged change."""
        self.froze_s: list[float] = []
        """The same from each SIGSTOP: nobody's connection breaks, so that the quorum's fetch timeout comes first."""

    def all_voters_have_what_is_committed(self) -> int:
        """Or another loss would be one too many; the active controller."""
        committed = quorum_of(self.nodes).high_watermark

        def caught_up() -> bool:
            ends = quorum_of(self.nodes).ends
            return len(ends) == 3 and min(ends.values()) >= committed

        wait_for(caught_up, "all three voters to have what is committed")
        return quorum_of(self.nodes).leader_id

    def active(self) -> Node:
        return self.nodes[self.all_voters_have_what_is_committed()]

    def brokers_but(self, node: Node) -> list[str]:
        return [one.bootstrap for one in self.nodes if BROKER in one.roles.split(",") and one is not node]

    def decide_without(self, node: Node) -> float:
        self.rounds += 1
        began = time.monotonic()
        until_decided(self.brokers_but(node), f"round-{self.rounds}")
        return time.monotonic() - began

    def only_the_active_one_decides(self) -> None:
        """Controllers that are asked directly pass nothing on."""
        active = self.active()
        for node in self.nodes:
            if node.is_controller:
                code = create_once(node.controller_address, f"asked-{node.id}", timeout_s=5.0)
                assert code == (ErrorCode.NONE if node is active else ErrorCode.NOT_CONTROLLER)

    def kill(self) -> None:
        node = self.active()
        node.kill()
        self.took_s.append(self.decide_without(node))
        node.start()

    def freeze(self) -> None:
        """It is asked while it stands still, and answers when it wakes up: it must not answer as if it led."""
        node = self.active()
        node.freeze()
        try:
            self.froze_s.append(self.decide_without(node))
            name = f"late-{self.rounds}"
            with Connection(node.controller_address) as late:
                asked = late.send(ApiKey.CREATE_TOPICS, 7, creation(name, 1000))
                node.thaw()
                try:
                    answer = late.answer(ApiKey.CREATE_TOPICS, 7, asked)
                except ClosedError:
                    return
            assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER, "it believes that it leads"
        finally:
            node.thaw()

    def more(self, count: int = 5) -> None:
        """Until the admins have been told of some more changes."""
        goals = [(maker, maker.acknowledged + count) for maker in self.makers]
        wait_for(
            lambda: all(maker.acknowledged >= goal or maker.failed is not None for maker, goal in goals),
            "more acknowledged changes",
            60.0,
        )

    def finish(self) -> None:
        self.more()
        for maker in self.makers:
            maker.finish()
        account_for(self.nodes, self.makers)
        names = {f"round-{number + 1}" for number in range(self.rounds)}
        self.makers.append(_made(names))
        account_for(self.nodes, self.makers)


def _made(names: set[str]) -> TopicMaker:
    maker = TopicMaker("rounds", KafkaPython(""))
    maker.there |= names
    return maker


def told_of(nodes: Nodes, story: Story) -> None:
    made = sum(maker.acknowledged for maker in story.makers)
    unsure = sum(len(maker.unsure) for maker in story.makers)
    print(f"{made} acknowledged changes, {unsure} not answered; epoch {quorum_of(nodes).epoch}")
    for loss, took_s in (("kill -9", story.took_s), ("SIGSTOP", story.froze_s)):
        print(f"from {loss} to the first change, s:", ", ".join(f"{took:.2f}" for took in sorted(took_s)))


@pytest.mark.parametrize("shape", SHAPES)
def test_acknowledged_changes_outlive_the_controllers_that_made_them(tmp_path: Path, shape: str) -> None:
    with Nodes(tmp_path, SHAPES[shape]) as nodes:
        story = Story(nodes)
        story.only_the_active_one_decides()
        for lose in (story.kill, story.freeze, story.kill):
            story.more()
            lose()
        story.finish()
        told_of(nodes, story)
        for node in nodes:
            node.kill()
        nodes.start()
        account_for(nodes, story.makers)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", SHAPES)
def test_twenty_controllers_are_lost_and_each_is_replaced_soon(tmp_path: Path, shape: str) -> None:
    """The bound on wall time is the promise itself: a new controller decides within 3 s after kill -9."""
    losses: list[str] = ["kill"] * 12 + ["freeze"] * 8
    Random(shape).shuffle(losses)
    with Nodes(tmp_path, SHAPES[shape]) as nodes:
        story = Story(nodes)
        for loss in losses:
            story.more()
            lose: Callable[[], None] = getattr(story, loss)
            lose()
        story.finish()
        told_of(nodes, story)
        assert max(story.took_s) <= DECIDES_S_MAX, sorted(story.took_s)
