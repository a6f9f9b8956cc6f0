"""``python -m tools.op_table``: run the functions, record the results, write docs/ops.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from tilesmith.frontend.functions.torch_functions import TORCH_FUNCTIONS
from tools.op_table.probe import HOST_BACKENDS
from tools.op_table.recorded import RESULTS, Results, load, save
from tools.op_table.render import PAGE, render, summary
from tools.op_table.shards import survey_in_shares, surveyed_names
from tools.op_table.survey import survey


def main() -> None:
    """Read the command line and do it."""
    options = _parse()
    backends = ("cuda",) if options.device == "cuda" else HOST_BACKENDS
    if options.compile:
        backends = ("compiled",)
    results = load(options.results)
    if not options.render:
        only = set(options.only.split(",")) if options.only else None
        if options.jobs > 1:
            _update_by_shares(results, options, only)
            return
        newer = survey(backends, only=only, progress=options.progress)
        results.update(newer)
        if options.device == "cpu":
            results.not_provided = newer.not_provided
            results.torch_version = torch.__version__.partition("+")[0]
        for name in TORCH_FUNCTIONS:
            results.marks.setdefault(name, {})
    _record(results, options)
    print(summary(results))
    if any("c" in marks for row in results.marks.values() for marks in row.values()):
        sys.exit("the compiler failed on some calls")


def _update_by_shares(results: Results, options: argparse.Namespace, only: set[str] | None) -> None:
    """Run shares in processes; what is known is on disk after each."""
    names = [name for name in surveyed_names() if only is None or name in only]
    for newer in survey_in_shares(names, options.device, options.jobs):
        results.update(newer)
        _record(results, options)
    print(summary(results))


def _record(results: Results, options: argparse.Namespace) -> None:
    results.keep_only(TORCH_FUNCTIONS)
    save(results, options.results)
    options.page.write_text(render(results))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.op_table", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", help="functions to run again, with commas between")
    parser.add_argument("--compile", action="store_true", help="only cross-compile for cuda:90")
    parser.add_argument("--render", action="store_true", help="only write the page again")
    parser.add_argument("--progress", action="store_true", help="say which function is next")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the functions")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    return parser.parse_args()


if __name__ == "__main__":
    main()
