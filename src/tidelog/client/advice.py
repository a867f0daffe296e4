"""What is wrong with a cluster, and the command that helps: decided from its health alone."""

from dataclasses import dataclass
from shlex import quote
from typing import Literal

from tidelog.client.admin import INTERNAL_TOPICS
from tidelog.client.bounds import (
    DAYS_LEFT_MIN,
    FREE_SHARE_MIN,
    NOTES_MAX,
    OPEN_LONGER_THAN_MS,
    TOLD_GROUPS_MAX,
    TOLD_OFFLINE_MAX,
)
from tidelog.client.health import LEADER_FACT, BrokerHealth, GroupHealth, Health
from tidelog.client.in_sync import Lagging
from tidelog.client.log_dirs import LogDir
from tidelog.client.offline import Offline
from tidelog.rpc.open_transactions import OpenTransaction

SMALL_BYTES = 1 << 20

BELOW_MIN = (
    "partitions with fewer replicas in sync than min.insync.replicas: {:,}. Nothing is acknowledged (acks=all) there"
)
BELOW_ALL = "partitions with fewer replicas in sync than they have: {:,}"

Kind = Literal["unreachable", "controller", "offline", "replicas", "disk", "transaction", "group"]


@dataclass(frozen=True, slots=True)
class Problem:
    """`commands` can be typed in as they are, whatever clients call their groups; `advice` says which, and what else
    to do."""

    kind: Kind
    what: str
    advice: str
    commands: tuple[str, ...] = ()


def problems(health: Health) -> list[Problem]:
    """Those that need somebody, the worst first."""
    listed = [*_no_controller(health), *_silent_controllers(health), *_unreachable(health)]
    listed += _waiting([each for each in health.offline if each.advice is not None])
    failed = [each for each in health.offline if each.advice is None]
    listed += [_offline(each) for each in failed[:TOLD_OFFLINE_MAX]]
    if len(failed) > TOLD_OFFLINE_MAX:
        more = len(failed) - TOLD_OFFLINE_MAX
        listed.append(
            Problem("offline", f"{more:,} more partitions are offline", "look at them", ("tidelog status --json",))
        )
    listed += _lagging(health.lagging)
    for broker in health.brokers:
        for folder in broker.folders or ():
            listed += _disk(broker, folder)
    listed += [_transaction(each) for each in health.hanging or ()]
    of_groups = [problem for group in health.groups or () for problem in _group(group)]
    listed += of_groups[:TOLD_GROUPS_MAX]
    if len(of_groups) > TOLD_GROUPS_MAX:
        more = len(of_groups) - TOLD_GROUPS_MAX
        listed.append(Problem("group", f"{more:,} more groups have problems", "look at them", ("tidelog group list",)))
    return listed


def notes(health: Health) -> list[str]:
    """What is worth a look, and no problem by itself."""
    idle = [group for group in health.groups or () if group.state == "empty" and group.unread]
    lines = [
        f"group {group.name} has no members and is {group.unread:,} record{'' if group.unread == 1 else 's'} behind: "
        f"start its consumers, or, if nobody needs it any more, `tidelog group delete {quote(group.name)}`"
        for group in idle[:NOTES_MAX]
    ]
    if len(idle) > NOTES_MAX:
        lines.append(
            f"{len(idle) - NOTES_MAX:,} more groups have no members and are behind: "
            "`tidelog group list --state empty` shows them"
        )
    lines += _open_for_long(health)
    left_out = (health.groups_in_all or 0) - len(health.groups or ())
    if health.groups is not None and left_out > 0:
        lines.append(f"{left_out:,} more groups were not looked at")
    return lines + [f"unknown: {each}" for each in health.unknown]


def _no_controller(health: Health) -> list[Problem]:
    """Each broker tells what it knows; one that doesn't tell, such as Apache Kafka's, isn't counted."""
    without = [broker for broker in health.brokers if broker.facts.get(LEADER_FACT) == ""]
    if not without:
        return []
    who = ", ".join(str(broker.id) for broker in without)
    voters = without[0].facts.get("tidelog.quorum.voters", "").replace(",", ", ")
    knows = "brokers {} know" if len(without) > 1 else "broker {} knows"
    return [
        Problem(
            "controller",
            f"{knows.format(who)} no active controller: topics, settings and who leads what can't be changed there",
            f"see that more than half of the controllers {voters} run and reach each other; the log of each says who "
            "led last",
        )
    ]


def _silent_controllers(health: Health) -> list[Problem]:
    """The others go on: until one too many is lost."""
    silent, voters = health.silent_voters, health.voters
    if not silent:
        return []
    more = (len(voters) - 1) // 2 - len(silent)
    left = f"{more} more may be lost" if more > 0 else "none of the others may be lost"
    who = ", ".join(map(str, silent))
    return [
        Problem(
            "controller",
            f"{'controllers' if len(silent) > 1 else 'controller'} {who} of {', '.join(map(str, voters))} "
            f"{'are' if len(silent) > 1 else 'is'} not heard: {left}, or nothing can be changed",
            "start what is down, or look at its process and its log; one that never comes back is replaced, see "
            "docs/operating/cluster.md",
        )
    ]


def _unreachable(health: Health) -> list[Problem]:
    return [
        Problem(
            "unreachable",
            f"broker {node_id} doesn't answer: {why}",
            "start it, or look at its process and its log; the active controller takes one that ended off the list "
            "within seconds",
        )
        for node_id, why in health.unreachable[:TOLD_OFFLINE_MAX]
    ]


def days_left(broker: BrokerHealth, folder: LogDir) -> float | None:
    """How long the disk lasts at the rate of the recent past; None where that isn't known, or nothing goes."""
    rate = broker.taken_per_day(folder)
    if rate is None or rate <= 0 or folder.usable_bytes is None:
        return None
    return folder.usable_bytes / rate


def _waiting(offline: list[Offline]) -> list[Problem]:
    """Those that wait for a broker, together by what they wait for: one that is down leaves thousands of them."""
    alike: dict[tuple[str, str], list[Offline]] = {}
    for each in offline:
        alike.setdefault((each.why, each.advice or ""), []).append(each)
    listed: list[Problem] = []
    for (why, advice), some in alike.items():
        shown = ", ".join(each.place for each in some[:NOTES_MAX])
        if len(some) > NOTES_MAX:
            shown += f" and {len(some) - NOTES_MAX:,} more"
        listed.append(Problem("offline", f"{shown} {'is' if len(some) == 1 else 'are'} offline: {why}", advice))
    return listed[:TOLD_OFFLINE_MAX]


def _offline(each: Offline) -> Problem:
    what = each.message
    look = f"tidelog topic describe {each.topic}"
    if "restart" in (each.reason or ""):
        return Problem("offline", what, "do as that says, or restore its files from a backup first", (look,))
    if each.topic in INTERNAL_TOPICS:
        lost = "transactions" if each.topic == "__transaction_state" else "groups and their committed offsets"
        return Problem(
            "offline",
            what,
            f"it keeps {lost}: restore its files from a backup and restart the broker; those of other partitions are "
            "served",
            (look,),
        )
    return Problem(
        "offline",
        what,
        "restore its files from a backup and restart the broker; without one, the topic can only be given up, with all "
        f"records that the other partitions of {each.topic} have",
        (look, f"tidelog topic delete {each.topic}"),
    )


def _lagging(lagging: list[Lagging]) -> list[Problem]:
    """Together: a broker that is down leaves thousands of them."""
    below = [each for each in lagging if each.below_min]
    rest = [each for each in lagging if not each.below_min]
    listed: list[Problem] = []
    for some, what in ((below, BELOW_MIN), (rest, BELOW_ALL)):
        if some:
            shown = ", ".join(f"{each.place} ({each.has})" for each in some[:NOTES_MAX])
            more = f" and {len(some) - NOTES_MAX:,} more" if len(some) > NOTES_MAX else ""
            away = sorted({id for each in some for id in each.missing})
            listed.append(
                Problem(
                    "replicas",
                    f"{what.format(len(some))}: {shown}{more}",
                    f"see that {'broker' if len(away) == 1 else 'brokers'} {', '.join(map(str, away))} "
                    f"{'runs and has' if len(away) == 1 else 'run and have'} room on the disk, and look at the log "
                    "there; replicas that caught up come back by themselves",
                    (f"tidelog topic describe {some[0].topic}",),
                )
            )
    return listed


def _disk(broker: BrokerHealth, folder: LogDir) -> list[Problem]:
    where = f"the disk of {folder.path} on broker {broker.id}"
    if folder.error is not None:
        return [Problem("disk", f"{where} can't be used: {folder.error}", "look at the disk, then restart the broker")]
    if folder.usable_bytes is None or not folder.total_bytes:
        return []
    left = days_left(broker, folder)
    share = folder.usable_bytes / folder.total_bytes
    if share >= FREE_SHARE_MIN and (left is None or left >= DAYS_LEFT_MIN):
        return []
    if folder.usable_bytes < SMALL_BYTES:
        what = f"{where} is full: {folder.usable_bytes:,} bytes are free"
    elif share < FREE_SHARE_MIN:
        what = f"{where} is nearly full: {share:.1%} is free"
    else:
        what = f"{where} lasts for {left:.1f} days at the rate of the recent past"
    largest = _largest(folder)
    commands = ("tidelog topic list --by-size",)
    if largest is not None:
        commands += (f"tidelog topic trim {largest} --before 1d", f"tidelog topic trim {largest} --before end")
    advice = (
        "free some space: remove other files, or records that nobody needs any more, such as those that are older than "
        "a day, or all of a topic"
    )
    return [Problem("disk", what, advice, commands)]


def _largest(folder: LogDir) -> str | None:
    sizes: dict[str, int] = {}
    for (topic, _), size in folder.sizes.items():
        if not topic.startswith("__"):
            sizes[topic] = sizes.get(topic, 0) + size
    return max(sizes, key=lambda topic: sizes[topic]) if any(sizes.values()) else None


def _transaction(each: OpenTransaction) -> Problem:
    what = (
        f"a transaction of {each.name or f'producer {each.producer_id}'} hangs in {each.topic}-{each.partition}: "
        f"readers of committed records wait at offset {each.first_offset}"
    )
    if each.ended_by == "nobody":
        place = f"--topic {each.topic} --partition {each.partition} --offset {each.first_offset}"
        return Problem("transaction", what, "no coordinator knows it: abort it", (f"tidelog txn abort {place}",))
    name = quote(each.name or "")
    return Problem(
        "transaction",
        what,
        "its owner has to end it: start that again; settle what a Spark query left, or abort what nobody will commit",
        (f"tidelog txn settle {name}", f"tidelog txn abort {name}"),
    )


def _group(group: GroupHealth) -> list[Problem]:
    if group.state == "rebalancing":
        return [
            Problem(
                "group",
                f"group {group.name} rebalances and doesn't come to an end: its {group.members} members read nothing",
                "find the member that doesn't answer, and restart it",
                (f"tidelog group describe {quote(group.name)}",),
            )
        ]
    if group.beyond_end:
        return [_beyond_end(group)]
    if group.members and not group.committed and group.waiting:
        topics = " ".join(f"--topic {topic}" for topic in group.topics)
        return [
            Problem(
                "group",
                f"group {group.name} never committed an offset: its lag is unknown, up to {group.waiting:,} "
                f"record{'' if group.waiting == 1 else 's'}, and it begins anew when it restarts",
                "have its consumers commit what they have read; or stop them and say where they go on, such as at the "
                "first record",
                (
                    f"tidelog group describe {quote(group.name)}",
                    f"tidelog group reset {quote(group.name)} --to earliest {topics}".rstrip(),
                ),
            )
        ]
    return []


def _beyond_end(group: GroupHealth) -> Problem:
    first, *others = group.beyond_end
    more = f" (and {len(others):,} more like it)" if others else ""
    partitions: dict[str, list[int]] = {}
    for each in group.beyond_end:
        partitions.setdefault(each.topic, []).append(each.partition)
    topics = " ".join(f"--topic {topic}:{','.join(map(str, numbers))}" for topic, numbers in partitions.items())
    return Problem(
        "group",
        f"group {group.name} committed offset {first.committed:,} of {first.topic}-{first.partition}, which is beyond "
        f"the end, {first.end:,}{more}: the log began anew, its lag is unknown, and its consumers start where their "
        "auto.offset.reset says",
        "stop its consumers and say where they go on, such as at the first record",
        (
            f"tidelog group describe {quote(group.name)}",
            f"tidelog group reset {quote(group.name)} --to earliest {topics}",
        ),
    )


def _open_for_long(health: Health) -> list[str]:
    """Transactions that are open for long, though somebody will end them: one note for each, the oldest first."""
    hanging = {(each.topic, each.partition, each.first_offset) for each in health.hanging or ()}
    oldest: dict[int, OpenTransaction] = {}
    for each in sorted(health.open_transactions or (), key=lambda each: each.since_ms):
        if (each.topic, each.partition, each.first_offset) not in hanging:
            oldest.setdefault(each.producer_id, each)
    long = [each for each in oldest.values() if health.asked_ms - each.since_ms > OPEN_LONGER_THAN_MS]
    lines = [
        f"the transaction of {each.name or f'producer {each.producer_id}'} is open for "
        f"{(health.asked_ms - each.since_ms) // 1000:,} s: readers of committed records wait at offset "
        f"{each.first_offset:,} of {each.topic}-{each.partition}; `tidelog txn hanging {each.topic} --open` tells more"
        for each in long[:NOTES_MAX]
    ]
    if len(long) > NOTES_MAX:
        lines.append(
            f"{len(long) - NOTES_MAX:,} more are open for over a minute: `tidelog txn hanging --open` shows them"
        )
    return lines
