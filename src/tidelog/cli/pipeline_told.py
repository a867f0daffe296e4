"""What `tidelog pipeline` says when something goes wrong: what a person can do something about, without a traceback."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.failure import Failure

if TYPE_CHECKING:
    from tidelog.spark.pipeline.file.model import Pipeline

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class NotAll(Failure):
    """A run that is done but for records behind an open transaction."""

    exit_code = 3


def load_file(file: Path, bootstrap: str | None) -> "Pipeline":
    """The pipeline of a file, or every problem that the file shows by itself.

    Brokers are those of the flag, of the file, of TIDELOG_BOOTSTRAP: the first that is given.
    """
    from tidelog.rpc.address import addresses
    from tidelog.spark.pipeline.file.check import PipelineError
    from tidelog.spark.pipeline.file.model import load

    try:
        made = load(file, bootstrap)
    except PipelineError as error:
        raise Failure(str(error)) from None
    except UnicodeDecodeError as error:
        raise Failure(f"{file}: not UTF-8, as TOML has to be: {error.reason} at byte {error.start}") from None
    address = None if bootstrap or made.spec.bootstrap is not None else os.environ.get("TIDELOG_BOOTSTRAP")
    if not address:
        return made
    try:
        addresses(address)
    except ValueError as error:
        raise Failure(f"TIDELOG_BOOTSTRAP: {error}") from None
    return replace(made, bootstrap=address)


def need_spark(what: str = "pipelines run on Spark, which") -> None:
    """Before anything of it is imported."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise Failure(f"{what} is not installed", "pip install 'tidelog[spark]'")


@contextmanager
def spark_told() -> Generator[None]:
    """Errors of pipelines, Spark and the way to a broker, each in its words."""
    need_spark()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from tidelog.spark.pipeline.file.check import PipelineError
    from tidelog.spark.pipeline.run.held_up import HeldUp
    from tidelog.spark.pipeline.run.java import NoSpark
    from tidelog.spark.pipeline.run.reason import words_of

    with brokers_told():
        try:
            yield
        except (PipelineError, NoSpark) as error:
            raise Failure(str(error)) from None
        except HeldUp as error:
            raise NotAll(
                str(error), "`tidelog txn hanging --open` tells who ends it; run it again after that"
            ) from None
        except (Py4JError, PySparkException) as error:
            raise Failure(
                f"Spark can't do it: {words_of(error)}", "spark.log in the pipeline's state says more"
            ) from None
        except NotImplementedError:
            raise
        except OSError as error:
            if error.filename is not None or error.errno is None:
                raise
            raise Failure(
                f"{error.strerror}, while writing the pipeline's state", "make room there, and run it again"
            ) from None
        except RuntimeError as error:
            raise Failure(str(error), getattr(error, "advice", "run it again to go on from there")) from None


@contextmanager
def brokers_told() -> Generator[None]:
    """What brokers answered, or that none did."""
    from tidelog.rpc.errors import Lost, Unreachable, Unsupported
    from tidelog.wire.errors import KafkaError

    try:
        yield
    except KafkaError as error:
        raise Failure(error.message or str(error)) from None
    except (Unreachable, Unsupported, Lost) as error:
        raise Failure(str(error)) from None
