"""A pipeline's file as a project of Spark Declarative Pipelines: written, checked dry, and run by spark-pipelines."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.spark import orders
from tests.spark.conftest import JVM_TIMEOUT_S, java
from tidelog.cli.app import app
from tidelog.client import Admin
from tidelog.spark.pipeline.declarative import write_project
from tidelog.spark.pipeline.file.check import PipelineError
from tidelog.spark.pipeline.file.model import load
from tidelog.testing import Broker

UPDATE = orders.FILE.partition("[[sink]]")[2].partition("[[sink]]")[0]
FILE = orders.FILE.replace(f"[[sink]]{UPDATE}", "", 1)
"""The same without the sink in update mode, which Declarative Pipelines don't have."""

MISSING = [name for name in ("grpc", "grpc_status", "google", "yaml") if importlib.util.find_spec(name) is None]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def file(text: str) -> Path:
        (tmp_path / "orders.toml").write_text(text)
        return tmp_path / "orders.toml"

    return file


def test_a_project_reads_the_file_that_it_was_made_from(write: Callable[[str], Path], tmp_path: Path) -> None:
    file = write(FILE)
    done = CliRunner().invoke(app, ["pipeline", "declare", str(file), "--to", str(tmp_path / "project"), "-b", "h:1"])
    assert done.exit_code == 0, done.output
    spec = (tmp_path / "project" / "spark-pipeline.yml").read_text()
    assert '\nname: "orders"\n' in spec
    assert f'\nstorage: "file://{tmp_path}/state/declarative"\n' in spec
    assert "\n  - glob: {include: transformations/**}\n" in spec
    settings = (tmp_path / "project" / "conf" / "spark-defaults.conf").read_text()
    assert f"spark.sql.warehouse.dir=file://{tmp_path}/state/declarative/warehouse\n" in settings
    code = (tmp_path / "project" / "transformations" / "orders.py").read_text()
    assert code.endswith(f"\ndeclare({str(file)!r}, bootstrap='h:1')\n")


def test_a_project_is_written_anew_and_that_of_another_is_not_touched(
    write: Callable[[str], Path], tmp_path: Path
) -> None:
    made = write_project(load(write(FILE)), tmp_path / "project")
    assert write_project(load(write(FILE)), tmp_path / "project") == made
    for file in made:
        kept = file.read_text()
        file.write_text("# mine\n" + kept)
        made[-1].with_name("other.py").touch()
        with pytest.raises(PipelineError, match=f"{file} is there, and not made from this file: name another folder"):
            write_project(load(write(FILE)), tmp_path / "project")
        assert file.read_text() == "# mine\n" + kept
        file.write_text(kept)


@pytest.mark.parametrize(
    ("sink", "why"),
    [
        (
            'mode = "complete"\nconsole = true',
            r"orders.toml:10: .*mode = 'complete': Declarative Pipelines only append",
        ),
        ('path = "lake"\nupsert_by = ["id"]', r"orders.toml:11: .*Declarative Pipelines have no upsert_by"),
        ('jdbc = "jdbc:x"\ntable = "t"', r"orders.toml:10: .*Declarative Pipelines have no jdbc"),
        ("console = true\n[bad_rows]\ndrop = true", r"orders.toml:12: Declarative Pipelines count no rows"),
    ],
)
def test_what_can_not_be_declared_is_refused_with_its_line(
    write: Callable[[str], Path], tmp_path: Path, sink: str, why: str
) -> None:
    head = 'name = "orders"\nstate = "state"\n\n[source.orders]\ntopics = ["orders"]\n\n\n[[sink]]\nfrom = "orders"\n'
    with pytest.raises(PipelineError, match=why):
        write_project(load(write(head + sink + "\n")), tmp_path / "project")
    assert not (tmp_path / "project").exists()


@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(3 * JVM_TIMEOUT_S)
@pytest.mark.skipif(java() is None, reason="Spark needs Java 17: apt-get install openjdk-17-jre-headless")
@pytest.mark.skipif(bool(MISSING), reason=f"no {MISSING}: needs pip install 'pyspark[pipelines]'")
def test_spark_pipelines_runs_the_project_and_a_second_run_adds_nothing(
    write: Callable[[str], Path], tmp_path: Path
) -> None:
    import pyarrow.parquet

    file = write(FILE)
    with Broker(orders.SETTINGS) as broker:
        orders.fill(broker.bootstrap)
        write_project(load(file, broker.bootstrap), tmp_path / "project")
        said = spark_pipelines("dry-run", tmp_path)
        assert "Run is COMPLETED" in said
        assert all(each.end == 0 for each in Admin(broker.bootstrap).topic("dated").partitions)
        for _ in range(2):
            spark_pipelines("run", tmp_path)
            lake = pyarrow.parquet.read_table(tmp_path / "state" / "declarative" / "warehouse" / "lake").to_pylist()
            result = orders.result(broker.bootstrap, lake, places=("dated", "dead", "lake"))
            assert result == {name: rows for name, rows in orders.expected().items() if name in result}


def spark_pipelines(command: str, folder: Path) -> str:
    import pyspark

    home, project = Path(pyspark.__file__).parent, folder / "project"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(project / "conf"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [str(home / "bin" / "spark-pipelines"), command, "--spec", str(project / "spark-pipeline.yml")],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=JVM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout + done.stderr
