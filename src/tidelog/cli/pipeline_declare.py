"""`tidelog pipeline declare`: a project of Spark Declarative Pipelines from a pipeline's file."""

import shlex
from pathlib import Path

import click

from tidelog.cli.options import pipeline_bootstrap_option
from tidelog.cli.pipeline_told import FILE, load_file, spark_told


@click.command()
@click.argument("file", type=FILE)
@click.option("--to", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="The project.")
@pipeline_bootstrap_option
def declare(file: Path, folder: Path, bootstrap: str | None) -> None:
    """Write a project of Spark Declarative Pipelines that reads FILE, and say how to run it.

    \b
    Examples:
      tidelog pipeline declare orders.toml --to orders-project
    """
    pipeline = load_file(file, bootstrap)
    with spark_told():
        from tidelog.spark.pipeline.declarative import write_project

        made = write_project(pipeline, folder)
    for each in made:
        click.echo(f"Wrote {each}")
    conf, spec = (shlex.quote(str(each)) for each in (made[1].parent, made[0]))
    click.echo(f"Run it: SPARK_CONF_DIR={conf} spark-pipelines run --spec {spec}")
