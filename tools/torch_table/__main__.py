"""Writes docs/torch.md: ``python -m tools.torch_table`` runs every feature in every state.

With ``--other``, under another version of torch, only the column of that version is written anew.

A cell is what happened: the probe ran and its results were eager's, it was refused with an error of
ours, or something else went wrong.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import tilesmith
from tools.torch_table import probes
from tools.torch_table.probes import Use

PAGE = Path(__file__).with_name("page.md")
OTHERS = Path(__file__).with_name("other_versions.json")
"""Marks of features by the version of torch, each in all states one after the other."""
OUTPUT = Path(__file__).parents[2] / "docs" / "torch.md"
RIGHT, REFUSED, WRONG, NOT_RUN = "✓", "✗", "!", "·"


@dataclass(frozen=True)
class Feature:
    """A row."""

    name: str
    probe: Callable[[Use], None] | None
    """None: nothing to run here."""
    is_slow: bool = False
    """It compiles with a C++ compiler or takes seconds for another reason."""
    device: str = "cpu"
    remark: str = ""


FEATURES = (
    Feature("torch.compile, fullgraph", probes.compiled, is_slow=True),
    Feature("torch.compile with Inductor", probes.compiled_by_inductor, is_slow=True),
    Feature("torch.export", probes.exported, is_slow=True),
    Feature("AOTInductor", probes.packaged, is_slow=True),
    Feature("make_fx", probes.traced_by_fx),
    Feature("torch.jit.trace", probes.traced_by_jit),
    Feature("fake tensors", probes.on_fake_tensors),
    Feature("opcheck", probes.checked, is_slow=True),
    Feature("vmap", probes.batched, remark="one launch, or one for each element"),
    Feature("torch.func.grad", probes.differentiated_by_func, remark="first derivatives"),
    Feature("forward mode", probes.with_tangents, remark="go backwards: torch.func.vjp"),
    Feature("functionalize", probes.functionalized),
    Feature("inference mode", probes.in_inference_mode),
    Feature("autocast", probes.under_autocast, remark="types of arguments decide"),
    Feature("gradients", probes.differentiated),
    Feature("gradients in graphs", probes.differentiated_in_graphs, is_slow=True),
    Feature("DTensor", probes.on_shards, remark="where tiles are independent; else refused"),
    Feature("dispatch and function modes", probes.under_modes),
    Feature("CUDA graphs", probes.in_cuda_graphs, device="cuda", remark="tests/device"),
    Feature("profiler", None, remark="has tests of its own"),
)
STATES = ("cold", "warm", "second shape", "dynamic")


def run(feature: Feature, state: str) -> str:
    """The mark of a cell."""
    if feature.probe is None or (feature.device == "cuda" and not torch.cuda.is_available()):
        return NOT_RUN
    is_dynamic = state == "dynamic"
    kernel = tilesmith.kernel(probes.row_softmax, static_shapes=not is_dynamic)
    sizes = {"second shape": (5, 8), "dynamic": (5, 8, 13)}.get(state, (5,))
    use = Use(kernel, sizes, is_dynamic, feature.device)
    if state == "warm":
        kernel(use.rows(5))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            feature.probe(use)
    except tilesmith.exc.BaseError:
        return REFUSED
    except Exception as error:
        print(f"{feature.name}, {state}: {type(error).__name__}: {error}")
        return WRONG
    return RIGHT


def lines(marks: dict[str, list[str]], version: str = torch.__version__) -> Iterator[str]:
    """The page."""
    introduction, remarks = PAGE.read_text(encoding="utf-8").split("<!-- table -->\n\n")
    yield introduction.rstrip("\n") + "\n"
    yield f"torch {version.partition('+')[0]}, CPU:"
    yield ""
    yield f"| feature | {' | '.join(STATES)} | |"
    yield "|---" * (len(STATES) + 2) + "|"
    for feature in FEATURES:
        yield f"| {feature.name} | {' | '.join(marks[feature.name])} | {feature.remark} |"
    yield ""
    before, after = remarks.split("<!-- other versions -->\n")
    yield before
    yield from _other_lines()
    yield after


def _other_lines() -> Iterator[str]:
    others: dict[str, dict[str, str]] = json.loads(OTHERS.read_text(encoding="utf-8"))
    yield f"| feature | {' | '.join(f'torch {version}' for version in others)} |"
    yield "|---" * (len(others) + 1) + "|"
    for feature in FEATURES:
        cells = [marks.get(feature.name, NOT_RUN) for marks in others.values()]
        yield f"| {feature.name} | {' | '.join(cells)} |"


def _write_other() -> None:
    others = json.loads(OTHERS.read_text(encoding="utf-8"))
    found = {feature.name: "".join(run(feature, state) for state in STATES) for feature in FEATURES}
    others[torch.__version__.partition("+")[0]] = found
    OTHERS.write_text(json.dumps(others, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_marks(page: str) -> dict[str, list[str]]:
    """The marks on a page, by feature."""
    table = page.partition("\n## ")[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in table if line.startswith("| ")]
    return {row[0]: [mark.strip(" |") for mark in row[1 : 1 + len(STATES)]] for row in rows[1:]}


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="features to run; other rows stay as they are")
    parser.add_argument("--other", action="store_true", help="add this torch to the other versions")
    options = parser.parse_args()
    only: list[str] | None = [] if options.other else options.only
    if options.other:
        _write_other()
    page = OUTPUT.read_text(encoding="utf-8")
    old = read_marks(page) if only is not None else {}
    version = (
        page.partition("\ntorch ")[2].partition(",")[0] if options.other else torch.__version__
    )
    marks = {
        feature.name: [run(feature, state) for state in STATES]
        if only is None or feature.name in only
        else old[feature.name]
        for feature in FEATURES
    }
    OUTPUT.write_text("\n".join(lines(marks, version)), encoding="utf-8")


if __name__ == "__main__":
    main()
