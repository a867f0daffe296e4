"""A broker whose copy of the metadata is older than its partitions sets nothing aside before it has caught up."""

import shutil
from pathlib import Path

from tests.nodes import BROKER, CONTROLLER, Nodes, wait_for
from tests.reading import create_topic
from tests.stories.test_cluster_growing import RECORDS, consume, produce

METADATA = "__cluster_metadata-0"


def strays(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if "stray" in path.name]


def test_partitions_that_old_metadata_does_not_know_stay_where_they_are(tmp_path: Path) -> None:
    with Nodes(tmp_path, {1: CONTROLLER, 2: BROKER}) as nodes:
        controller, broker = nodes[1], nodes[2]
        create_topic(broker.bootstrap, "before")
        broker.stop()
        shutil.copytree(broker.folder / METADATA, tmp_path / "old copy")
        broker.start()
        create_topic(broker.bootstrap, "tide")
        produce(broker.bootstrap, "tide")
        broker.kill()
        shutil.rmtree(broker.folder / METADATA)
        shutil.copytree(tmp_path / "old copy", broker.folder / METADATA)

        # No controller tells it of what it doesn't know: it gives up, and everything is where it was.
        controller.freeze()
        broker.settings["initial.broker.registration.timeout.ms"] = "1500"
        broker.launch()
        process = broker.process
        assert process is not None
        wait_for(lambda: process.poll() is not None, "it to give up")
        broker.kill()
        assert "was not registered within 1.5 s" in broker.said()
        assert (broker.folder / "tide-0").is_dir()
        assert strays(broker.folder) == []
        controller.thaw()

        del broker.settings["initial.broker.registration.timeout.ms"]
        broker.start()
        assert consume(broker.bootstrap, "tide", "readers") == RECORDS
        assert strays(broker.folder) == []
