"""Three nodes that are killed, frozen, cut off and left without room under load; exit status 1 where a promise was
broken.

Each run is drawn from its seed, though not what it meets: real processes are never twice the same. What was found stays
in the folder that is named in the end, with every diary, the nodes' logs and their data.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.chaos.cluster import IDS
from tools.chaos.disks import Disks, Mounts, Quotas
from tools.chaos.faults import Kind
from tools.chaos.inside import go_inside, is_inside, prepare, way_inside
from tools.chaos.network import Namespaces, Network
from tools.chaos.proxies import Proxies
from tools.chaos.run import Run, Wanted

EXAMPLES = """
examples:
  make chaos MINUTES=10                                       ten minutes, of a seed of its own
  python -m tools.chaos --minutes 2 --seed 7                  two minutes, with the faults of seed 7
  python -m tools.chaos --only FREEZE --only SPLIT_BOTH       nothing but these faults
  python -m tools.chaos --without-namespaces                  with proxies between the nodes, as where there are none
"""


def main(arguments: Sequence[str] | None = None) -> int:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a broker that is compiled anew at each start is slow to come back
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _options(given)
    if not options.without_namespaces and not is_inside():
        way = way_inside()
        if way is not None:
            go_inside(way, given)
        print("network namespaces can't be had here: proxies between the nodes instead")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = int.from_bytes(os.urandom(2)) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="tidelog-chaos-")).resolve()
    print(f"seed {seed}, in {folder}", flush=True)
    network: Network
    disks: Disks
    if is_inside():
        prepare()
        network, disks = Namespaces(IDS), Mounts()
    else:
        network, disks = Proxies(), Quotas()
    wanted = Wanted(
        folder=folder,
        seed=seed,
        minutes=options.minutes,
        session_ms=options.session_timeout_ms,
        replicas=options.replicas,
        min_isr=min(2, options.replicas),
        java=not options.without_java,
        module=options.module,
        kinds=[Kind[name] for name in options.only],
    )
    run = Run(wanted, network, disks)
    print(run.go())
    if run.findings or options.keep:
        print(f"diaries, logs and data: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if run.findings else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.chaos",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long nodes are hurt (10)")
    parser.add_argument("--seed", type=int, help="which faults there are; otherwise one is drawn, and told")
    parser.add_argument("--session-timeout-ms", type=int, default=9000, help="broker.session.timeout.ms (9000)")
    parser.add_argument("--replicas", type=int, default=len(IDS), help="of every topic (3)")
    parser.add_argument(
        "--only", action="append", default=[], choices=[kind.name for kind in Kind], help="such a fault"
    )
    parser.add_argument("--without-java", action="store_true", help="no Java client, though there may be a Java")
    parser.add_argument("--without-namespaces", action="store_true", help="proxies between the nodes")
    parser.add_argument("--module", help="what is started instead of tidelog: the same with something gone wrong")
    parser.add_argument("--keep", action="store_true", help="keep diaries and logs, whatever was found")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
