"""What a query that is gone left is ended as was decided, by somebody who knows no more than a transactional id.

A decision is to be found in one topic only, and a query may have one of its own. In any other its batch looks as if
nobody had decided it: what is prepared, and so may be decided, would be aborted, and its rows lost.
"""

from dataclasses import replace

from tidelog.rpc import Cluster
from tidelog.rpc.groups import committed_topics
from tidelog.rpc.transactions import Described, describe_open
from tidelog.spark.sink.abort_run import end_owned
from tidelog.spark.sink.producers import Owner, owner_of
from tidelog.spark.sink.sink_name import described, group_of, older_name
from tidelog.spark.sink.sink_options import SinkOptions
from tidelog.spark.sink.sink_progress import NOTHING, decided, recorded, standing


class UnknownDecision(RuntimeError):
    """Whether a batch is decided can't be told from what is known: nothing of it was ended."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.advice = advice


def settle_run(options: SinkOptions, run: str, decisions: str | None = None) -> int:
    """End what tasks of a run left open, as the decisions of its sinks say; how many ids that were.

    `decisions` is their topic, where somebody named it. Else the groups of the sinks tell it, or it is that of the
    options. UnknownDecision, with nothing ended, where it can't be the right one.
    """
    left: dict[str, list[Described]] = {}
    with Cluster(options.bootstrap, options.rpc) as cluster:
        for each in describe_open(cluster, lambda name: (owner := owner_of(name)) is not None and owner.run == run):
            owner = owner_of(each.producer.transactional_id or "")
            if owner is not None:
                left.setdefault(owner.sink, []).append(each)
        topics = {
            sink: _topic(cluster, sink, transactions, decisions, options.decisions)
            for sink, transactions in left.items()
        }

    def end(sink: str, topic: str) -> int:
        def is_its(owner: Owner) -> bool:
            return (owner.sink, owner.run) == (sink, run)

        return end_owned(replace(options, decisions=topic), is_its, f"run {run}", is_ending=False)

    return sum(end(sink, topic) for sink, topic in topics.items())


def _topic(cluster: Cluster, sink: str, left: list[Described], decisions: str | None, usual: str) -> str:
    """The topic that holds the sink's last decision, by which what is `left` can be ended."""
    by_groups = _by_groups(cluster, sink)
    wanted = [decisions] if decisions is not None else by_groups or [usual]
    lasting = {each.producer: each for each in left if not each.leased}  # a lease is given up before a decision
    deciding: list[str] = []
    for topic in cluster.topics(dict.fromkeys([*wanted, *by_groups])):
        last = standing(cluster, sink, topic, stable=True)
        last = recorded(cluster, sink, topic) if last == NOTHING else last
        if last == NOTHING:
            continue
        if lasting.keys() & set(decided(cluster, sink, topic, last).transactions):
            if topic not in wanted:
                raise UnknownDecision(
                    f"the batch of {described(sink)} that was left open is decided in topic {topic}, not in "
                    f"{decisions}",
                    f"settle it with --decisions {topic}",
                )
            return topic
        deciding += [topic] if topic in wanted else []
    if not lasting:
        return (deciding or wanted)[0]
    if len(deciding) != 1:
        name = next(iter(lasting.values())).producer.transactional_id
        raise UnknownDecision(
            f"{name} is prepared, and no decision of {described(sink)} is in {' or '.join(wanted)}: its batch may be "
            "decided elsewhere, and then its rows would be lost"
            if not deciding
            else f"{name} is prepared, and decisions of {described(sink)} are in {' and '.join(deciding)}",
            "name the topic that the query had as its option decisionsTopic by --decisions. If that is the one: its "
            "driver was killed before it decided anything, and `tidelog txn abort --prepared` aborts what it left",
        )
    return deciding[0]


def _by_groups(cluster: Cluster, sink: str) -> list[str]:
    """The topics in which a sink's group has offsets, which stand beside its decisions."""
    names = (group_of(each) for each in (sink, older_name(sink)) if each is not None)
    return [topic for name in names for topic in committed_topics(cluster, name)]
