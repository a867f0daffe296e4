"""`tidelog txn`: list, describe and abort transactions, and find those that nothing will end."""

import shlex
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli.deleting import confirm
from tidelog.cli.failure import Failure
from tidelog.cli.options import bootstrap_option, json_option, topic_names
from tidelog.cli.show import human_time, show_json, show_table
from tidelog.cli.txn_settle import settle

if TYPE_CHECKING:
    from tidelog.client.transactions import Described, Transactions
    from tidelog.rpc.open_transactions import OpenTransaction

ENDED_BY = {
    "nobody": "nobody: abort it",
    "owner": "its owner",
    "lease": "its owner, or its lease",
    "timeout": "its timeout",
    "coordinator": "its coordinator, now",
}
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@click.group()
def txn() -> None:
    """List, describe and abort transactions.

    \b
    Examples:
      tidelog txn list --state ongoing
      tidelog txn hanging
      tidelog txn describe payments-1
      tidelog txn abort payments-1
    """


txn.add_command(settle)


@txn.command("list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="Only these; repeatable."
)
@click.option("--longer-than", type=click.FloatRange(0), metavar="SECONDS", help="Only those open for longer.")
@click.option("--match", metavar="PATTERN", help="Only ids that match this regular expression (RE2), whole.")
@bootstrap_option
@json_option
def list_transactions(
    states: tuple[str, ...], longer_than: float | None, match: str | None, bootstrap: str, as_json: bool
) -> None:
    """List the transactional ids, and the state of their last transaction.

    \b
    Examples:
      tidelog txn list
      tidelog txn list --state ongoing --longer-than 60
      tidelog txn list --match 'payments-.*' --json | jq -r .[].id
    """
    from tidelog.client.transactions import Transactions

    longer_ms = -1 if longer_than is None else int(longer_than * 1000)
    with Transactions(bootstrap) as transactions:
        listed = transactions.all(states, longer_ms, match)
    if as_json:
        show_json(
            [
                {"id": t.name, "state": t.state, "producer_id": t.producer_id, "coordinator": t.coordinator}
                for t in listed
            ]
        )
    elif listed:
        show_table(
            ["Transactional id", "State", "Producer id", "Coordinator"],
            [(t.name, t.state, t.producer_id, t.coordinator) for t in listed],
            right=(2, 3),
        )
    else:
        click.echo("No transactional ids.", err=True)


@txn.command()
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show state, producer and partitions of transactional ids.

    \b
    Examples:
      tidelog txn describe payments-1
      tidelog txn describe payments-1 --json
    """
    from tidelog.client.transactions import Transactions

    with Transactions(bootstrap) as transactions:
        described = [transactions.describe(name) for name in names]
    if as_json:
        show_json([_described(each) for each in described])
        return
    for each in described:
        click.secho(each.name, bold=True, nl=False)
        click.echo(
            f"  {each.state}, producer {each.producer_id} of epoch {each.producer_epoch}, timeout {_timeout(each)}"
        )
        if each.started_ms is not None:
            click.echo(f"  since {human_time(each.started_ms)}")
        for topic, index in each.partitions:
            click.echo(f"  {topic}-{index}")


@txn.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC...]", shell_complete=topic_names)
@click.option("--open", "every", is_flag=True, help="All that are open, also those that their timeout ends.")
@click.option(
    "--longer-than",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Two-phase transactions only where they are open for longer.",
)
@bootstrap_option
@json_option
def hanging(topics: tuple[str, ...], every: bool, longer_than: float, bootstrap: str, as_json: bool) -> None:
    """Find transactions that are open in a partition and that no timeout will end.

    Readers of committed records wait behind such a transaction. One that no coordinator knows is ended by `tidelog txn
    abort` alone. One of two-phase commit is ended by its owner, such as the next run of a Spark query; the coordinator
    aborts it when nobody renews its lease, if it has one and isn't prepared.

    \b
    Examples:
      tidelog txn hanging
      tidelog txn hanging orders
      tidelog txn hanging --open --json
    """
    from tidelog.client.transactions import Transactions

    with Transactions(bootstrap) as transactions:
        open_transactions = (
            transactions.open_transactions(topics) if every else transactions.hanging(topics, int(longer_than * 1000))
        )
    if as_json:
        show_json([_open(each) for each in open_transactions])
    elif open_transactions:
        show_table(
            ["Topic", "Partition", "From offset", "Transactional id", "Producer id", "Epoch", "Since", "Ended by"],
            [
                (
                    *(o.topic, o.partition, o.first_offset, o.name or "unknown", o.producer_id, o.producer_epoch),
                    *(human_time(o.since_ms), ENDED_BY[o.ended_by]),
                )
                for o in open_transactions
            ],
            right=(1, 2, 4, 5),
        )
    else:
        click.echo("None." if every else "None: what is open is ended by its timeout, or was begun just now.", err=True)


@txn.command()
@click.argument("name", required=False, metavar="[ID]")
@click.option(
    "--topic", "-t", metavar="TOPIC", help="Of a transaction that hangs: the topic.", shell_complete=topic_names
)
@click.option(
    "--partition", "-p", type=click.IntRange(0), metavar="N", help="Of a transaction that hangs: the partition."
)
@click.option(
    "--offset", "-o", type=click.IntRange(0), metavar="N", help="Of a transaction that hangs: where it begins."
)
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@click.option(
    "--prepared", is_flag=True, help="Also one that is prepared: if its commit is recorded, its rows are lost."
)
@bootstrap_option
@json_option
def abort(
    name: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    yes: bool,
    prepared: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Abort a transaction.

    By its transactional id: the coordinator aborts it, and its producer is fenced; not one of two-phase commit that is
    prepared, unless that is asked for. By topic, partition and first
    offset: an abort marker is written into the partition, for a transaction that no coordinator knows of any more.

    \b
    Examples:
      tidelog txn abort payments-1
      tidelog txn abort --topic orders --partition 0 --offset 1234
    """
    from tidelog.client.transactions import Transactions

    place = (topic, partition, offset)
    if (name is None) == (place == (None, None, None)) or (name is None and None in place):
        raise click.UsageError("give a transactional id, or all of --topic, --partition and --offset")
    with Transactions(bootstrap) as transactions:
        if name is not None:
            outcome, words = _abort(transactions, name, yes, prepared)
        else:
            assert topic is not None
            assert partition is not None
            assert offset is not None
            outcome, words = _abort_hanging(transactions, topic, partition, offset, yes)
    if as_json:
        show_json(outcome)
    else:
        click.echo(words)


def _abort(transactions: "Transactions", name: str, yes: bool, prepared: bool) -> tuple[dict[str, Any], str]:
    described = transactions.describe(name)
    state = described.state
    if state == "Ongoing" and described.prepared and not prepared:
        raise Failure(
            f"{name} is prepared: its commit may be recorded elsewhere, and then its rows would be lost",
            "`tidelog txn settle` ends what a Spark query left as its decision says; --prepared aborts it all the same",
        )
    confirm(f"Abort the transaction of {name} ({state}) and fence its producer?", yes=yes)
    transactions.abort(name)
    aborted = state == "Ongoing"
    words = f"Aborted the transaction of {name}." if aborted else f"{name} had none open; its producer is fenced."
    return {"id": name, "aborted": aborted}, words


def _abort_hanging(
    transactions: "Transactions", topic: str, partition: int, offset: int, yes: bool
) -> tuple[dict[str, Any], str]:
    transaction = transactions.find(topic, partition, offset)
    if transaction.name is not None:
        raise Failure(
            f"the transaction in {topic}-{partition} is of {transaction.name}, which its coordinator knows: with a "
            "marker past it the transaction would be aborted here, and perhaps committed elsewhere",
            f"`tidelog txn abort {shlex.quote(transaction.name)}` aborts all of it",
        )
    confirm(f"Write an abort marker of producer {transaction.producer_id} to {topic}-{partition}?", yes=yes)
    transactions.end_hanging(transaction)
    words = f"Aborted the transaction of producer {transaction.producer_id} in {topic}-{partition}."
    return {**_open(transaction), "aborted": True}, words


def _timeout(described: "Described") -> str:
    from tidelog.wire.leases import LEASED_MS, NO_TIMEOUT_MS, PREPARED_MS

    two_phase = {
        NO_TIMEOUT_MS: "none (two-phase commit)",
        LEASED_MS: "none, but a lease (two-phase commit)",
        PREPARED_MS: "none (two-phase commit, prepared)",
    }
    return two_phase.get(described.timeout_ms, f"{described.timeout_ms / 1000:g} s")


def _described(described: "Described") -> dict[str, Any]:
    return {
        "id": described.name,
        "state": described.state,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "timeout_ms": described.timeout_ms,
        "started_ms": described.started_ms,
        "partitions": [{"topic": topic, "partition": index} for topic, index in described.partitions],
    }


def _open(transaction: "OpenTransaction") -> dict[str, Any]:
    return {
        "topic": transaction.topic,
        "partition": transaction.partition,
        "offset": transaction.first_offset,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "last_written_ms": transaction.last_written_ms,
        "id": transaction.name,
        "since_ms": transaction.since_ms,
        "ended_by": transaction.ended_by,
    }
