"""A search on a real Ray cluster of several nodes here, of which a node or a worker is killed.

Run as a program: Ray's own threads, files and warnings stay out of the test process. Prints JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster

from examples.softmax import softmax
from tilesmith.fleet.tuning import FleetRequest, tune_fleet
from tilesmith.jit.tuner import TuneRequest
from tilesmith.store.journal import find_journals
from tilesmith.store.winners import Winners

NODE: dict[str, Any] = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20}
TIMER: dict[str, Any] = {"resources": {"tilesmith_timer": 1}}


def journal_lines(folder: Path) -> list[str]:
    return [line for path in find_journals(folder) for line in path.read_text().splitlines()]


def kill_when_it_has_measured(kill: Callable[[], None], folder: Path, seen: dict[str, Any]) -> None:
    while len(journal_lines(folder)) < seen["wanted"]:
        time.sleep(0.05)
    seen["before"] = journal_lines(folder)
    kill()


def parent_of(pid: int) -> int:
    """Of a process, by what the system says; 0: there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def is_ours(pid: int) -> bool:
    while pid > 1 and pid != os.getpid():
        pid = parent_of(pid)
    return pid == os.getpid()


def kill_a_worker() -> None:
    """End the process of one timing worker of this cluster. Its node lives."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_text().startswith("ray::TimingWorker") and is_ours(int(path.parent.name)):
                os.kill(int(path.parent.name), signal.SIGKILL)
                return
    raise AssertionError("there is no worker")


def main() -> None:
    folder, budget_s, wanted = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, **TIMER})
    nodes = [cluster.add_node(**NODE, **TIMER)]
    seen: dict[str, Any] = {"wanted": wanted, "before": []}
    if wanted:
        end_node = partial(cluster.remove_node, nodes[-1], allow_graceful=False)
        arguments = (end_node if sys.argv[4] == "node" else kill_a_worker, folder, seen)
        threading.Thread(target=kill_when_it_has_measured, args=arguments, daemon=True).start()
    jobs = [(softmax, (torch.randn(32, 96),))]
    request = TuneRequest(True, budget_s, {"cache_dir": str(folder)})
    lines: list[str] = []
    (found,) = tune_fleet(jobs, FleetRequest(str(cluster.address), request, tell=lines.append))
    after = journal_lines(folder)
    assert found.result is not None
    ray.shutdown()
    cluster.shutdown()
    sys.stdout.write(
        json.dumps(
            {
                "measured": found.num_measured,
                "ms": found.result.ms,
                "workers": len(found.lanes),
                "losses": list(found.losses),
                "told": lines,
                "kept": after[: len(seen["before"])] == seen["before"],
                "before": len(seen["before"]),
                "after": len(after),
                "winners": [winner.key.device for winner in Winners(folder).entries()],
            }
        )
    )


if __name__ == "__main__":
    main()
