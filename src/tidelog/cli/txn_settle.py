"""`tidelog txn settle`: end what a Spark query that is gone left open, as its decision says. Needs no Spark."""

import click

from tidelog.cli.deleting import confirm
from tidelog.cli.failure import Failure
from tidelog.cli.options import bootstrap_option, json_option
from tidelog.cli.show import show_json


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--decisions",
    metavar="TOPIC",
    help="Where the sink's decisions are. By default its group tells, or it is tidelog-spark-decisions.",
)
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@bootstrap_option
@json_option
def settle(names: tuple[str, ...], decisions: str | None, yes: bool, bootstrap: str, as_json: bool) -> None:
    """End what the runs of these transactional ids left open: committed where their batch is decided, else aborted.

    For a query of Spark's that was killed and won't run again. One that still runs loses its present batch, fails and
    says so; started again, it repeats it. Nothing is lost or written twice either way: what may be decided in a topic
    that isn't known is left alone.

    \b
    Examples:
      tidelog txn hanging
      tidelog txn settle tidelog-spark-QUERY-task-RUN-WORKER-1
    """
    from tidelog.cli.pipeline_told import brokers_told
    from tidelog.spark.sink.producers import owner_of
    from tidelog.spark.sink.settlement import UnknownDecision, settle_run
    from tidelog.spark.sink.sink_options import read_sink_options

    runs: dict[str, str] = {}
    for name in names:
        owner = owner_of(name)
        if owner is None:
            raise Failure(f"{name} is no transactional id of Spark's sink", "`tidelog txn abort` aborts others")
        runs[owner.run] = owner.sink
    confirm(f"End everything that {', '.join(sorted(set(runs.values())))} left open?", yes=yes)
    options = read_sink_options({"kafka.bootstrap.servers": bootstrap}, streaming=True)
    try:
        with brokers_told():
            ended = {run: settle_run(options, run, decisions) for run in runs}
    except UnknownDecision as error:
        raise Failure(str(error), error.advice) from None
    if as_json:
        show_json([{"run": run, "sink": runs[run], "ended": count} for run, count in ended.items()])
    else:
        for run, count in ended.items():
            click.echo(f"Ended {count} transactions of run {run} of {runs[run]}.")
