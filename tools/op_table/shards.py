"""The survey in several processes: a function whose kernel faults costs only those of its share."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tilesmith.frontend.functions.torch_functions import TORCH_FUNCTIONS
from tools.op_table.operators import all_operators, looked_up_name
from tools.op_table.recorded import Results, load

SHARES_PER_JOB = 4


def surveyed_names() -> list[str]:
    """The functions that a survey tries, each once."""
    names = (looked_up_name(operator, TORCH_FUNCTIONS) for operator in all_operators())
    return list(dict.fromkeys(name for name in names if name is not None))


def survey_in_shares(names: Sequence[str], device: str, jobs: int) -> Iterator[Results]:
    """What each share found, as they finish; one that died is named on stderr and left out."""
    count = max(1, min(len(names), jobs * SHARES_PER_JOB))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        runs = {
            pool.submit(_run_share, names[i::count], device, Path(folder) / str(i)): names[i::count]
            for i in range(count)
        }
        for run in as_completed(runs):
            results = run.result()
            if results is None:
                print(f"died: {', '.join(runs[run])}", file=sys.stderr, flush=True)
            else:
                yield _without_others(results, runs[run])


def _run_share(names: Iterable[str], device: str, folder: Path) -> Results | None:
    folder.mkdir()
    found = folder / "results.json"
    arguments = [f"--device={device}", f"--only={','.join(names)}", f"--results={found}"]
    command = [sys.executable, "-m", "tools.op_table", *arguments, f"--page={folder / 'page.md'}"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return load(found) if found.exists() else None


def _without_others(results: Results, names: Iterable[str]) -> Results:
    """A share's file also lists the functions that it was not asked for, without marks."""
    results.keep_only(names)
    return results
