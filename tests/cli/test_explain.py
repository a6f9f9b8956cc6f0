"""``tilesmith explain --stages``: every stage of the pipeline, what changed there, and the code."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from tilesmith.backends.cpu.schedule.rules import HEURISTICS as CPU_HEURISTICS
from tilesmith.backends.triton.schedule_rules import HEURISTICS as TRITON_HEURISTICS
from tilesmith.cli.explain import GROUNDS
from tilesmith.cli.main import app
from tilesmith.compiler.pipeline import STAGES

SOFTMAX = ["examples.softmax:softmax", "--args", "randn(16, 1000)"]
PRODUCT = ["examples.matmul_row_reduction:matmul_softmax", "--args"]


def stages_of(*arguments: str) -> dict[str, str]:
    """The text of each stage."""
    done = CliRunner().invoke(app, ["explain", *arguments, "--stages"])
    assert done.exit_code == 0, done.stderr
    names = re.findall(r"^== (\w+): ", done.stdout, re.MULTILINE)
    texts = re.split(r"^== \w+: ", done.stdout, flags=re.MULTILINE)[1:]
    return dict(zip(names, texts))


@pytest.mark.parametrize("target", ["cpu:avx2", "cuda:90"])
def test_all_stages_are_shown_down_to_the_code(target):
    stages = stages_of(*SOFTMAX, "--target", target)
    assert list(stages) == [stage.name for stage in STAGES]
    assert "func @softmax" in stages["TRACE"]
    assert "mask(" not in stages["TRACE"]
    assert "  mask_partial_tiles: Masks come after" in stages["STANDARD"]
    assert "mask(" in stages["STANDARD"]
    assert "nothing changed" in stages["STRUCTURE"]
    assert ("@triton.jit" in stages["EMIT"]) is (target == "cuda:90")


def test_a_config_shows_its_own_changes():
    # With fewer warps a thread has several neighbours, and both walks become one.
    config = '{"block_sizes": [4], "reduction_loops": [128], "num_warps": 8}'
    stages = stages_of(*SOFTMAX, "--target", "cuda:90", "--config", config)
    assert "  roll_reductions: " in stages["SCHEDULED"]
    assert 'blocks=["chunk"]' in stages["SCHEDULED"]
    assert "nothing changed" in stages["TARGET"]


def test_a_structure_is_shown_before_its_schedule():
    arguments = "randn(512, 512, dtype=bf16), randn(512, 2048, dtype=bf16)"
    config = '{"structure": "two_phases", "block_sizes": [64, 32, 128, 4]}'
    stages = stages_of(*PRODUCT, arguments, "--target", "cuda:90", "--config", config)
    assert "  split_rows: " in stages["STRUCTURE"]
    assert "grid_barrier()" in stages["STRUCTURE"]
    assert "grid_barrier()" not in stages["STANDARD"]
    assert "barrier_counter" in stages["TARGET"]


def test_a_config_that_is_none_is_a_message():
    done = CliRunner().invoke(app, ["explain", *SOFTMAX, "--stages", "--config", "[1]"])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: --config: a Config is a JSON object")


def test_determinism_is_said():
    done = CliRunner().invoke(app, ["explain", *SOFTMAX, "--count", "1"])
    assert "results    the same bits in every run\n" in done.stdout
    shared = [
        "tests.jit.test_visible:row_total",
        "--args",
        "randn(8, 70000)",
        "--target",
        "cuda:90",
    ]
    done = CliRunner().invoke(app, ["explain", *shared, "--count", "1"])
    assert "results    may differ from run to run: floats are added to `out` in any" in done.stdout


def test_the_default_says_why_it_stands_before_what_is_predicted_to_be_faster():
    arguments = ["examples.softmax:softmax", "--args", "randn(1024, 1024)", "--target", "cpu:avx2"]
    found = json.loads(CliRunner().invoke(app, ["explain", *arguments, "--json"]).stdout)
    first, *others = found["configs"]
    faster = min(others, key=lambda item: item["predicted_ms"])
    assert faster["predicted_ms"] < 0.9 * first["predicted_ms"], "choose another example"
    done = CliRunner().invoke(app, ["explain", *arguments])
    blocks = f"block_sizes={faster['config']['block_sizes']}"
    assert f"over       Config({blocks}), predicted " in done.stdout
    assert f"but here {first['ground']};" in done.stdout
    assert "less waiting: " in done.stdout


def test_a_default_that_is_also_predicted_to_be_fastest_needs_no_reason():
    done = CliRunner().invoke(app, ["explain", *SOFTMAX, "--count", "1"])
    assert "over  " not in done.stdout


def test_every_heuristic_says_what_its_choice_rests_on():
    names = {name for name, _ in (*CPU_HEURISTICS, *TRITON_HEURISTICS)}
    # Those that are chosen by the form of the kernel, in the rules themselves.
    assert names | {"product, then its rows", "each loop", "measured order"} == set(GROUNDS)


def test_facts_as_json():
    found = json.loads(CliRunner().invoke(app, ["facts", *SOFTMAX, "--json"]).stdout)
    assert [access["text"] for access in found["accesses"]] == ["x[tile_m, :]", "out[tile_m, :]"]
    assert found["bytes_read"] == found["bytes_written"] == 16 * 1000 * 4
    assert found["reductions"][0]["functions"] == ["max", "sum"]


def test_stages_have_no_json():
    done = CliRunner().invoke(app, ["explain", *SOFTMAX, "--stages", "--json"])
    assert done.exit_code == 2


def test_a_gpu_that_does_not_exist_is_refused():
    done = CliRunner().invoke(app, ["explain", *SOFTMAX, "--target", "cuda:999"])
    assert done.exit_code == 2
    assert "unknown target 'cuda:999': expected cpu, cuda:75" in done.stderr


def test_every_launch_is_told(tmp_path):
    (tmp_path / "shares.py").write_text(
        "import torch\nimport tilesmith\nimport tilesmith.language as hl\n\n\n"
        "@tilesmith.kernel\ndef shares(x: torch.Tensor) -> torch.Tensor:\n"
        "    sums = torch.empty([x.size(0)])\n    for row in hl.tile(x.size(0)):\n"
        "        sums[row] = x[row, :].sum(1)\n    out = torch.empty_like(x)\n"
        "    total = sums.sum()\n    for a, b in hl.tile(x.size()):\n"
        "        out[a, b] = x[a, b] / total[()]\n    return out\n"
    )
    kernel = [f"{tmp_path / 'shares.py'}:shares", "--args", "randn(16, 24)", "--device", "cpu"]
    told = CliRunner().invoke(app, ["explain", *kernel])
    assert told.stdout.count("\ndefault  ") == 2, told.stderr
    assert CliRunner().invoke(app, ["facts", *kernel]).stdout.count("facts of shares") == 2
    found = json.loads(CliRunner().invoke(app, ["explain", *kernel, "--json"]).stdout)
    assert len(found["launches"]) == 2
    stages = CliRunner().invoke(app, ["explain", *kernel, "--stages"])
    assert stages.stdout.count("== TRACE") == 2
    shown = json.loads(CliRunner().invoke(app, ["explore", *kernel, "--json"]).stdout)
    assert len(shown["launches"]) == 2
    for refused in (["explore", *kernel, "--measure"], ["accuracy", *kernel]):
        done = CliRunner().invoke(app, refused)
        assert done.exit_code == 2
        assert "several launches" in done.stderr


def test_a_reason_does_not_name_a_form_twice():
    sizes = "randn(1024, 1024, dtype=bf16), randn(1024, 1024, dtype=bf16)"
    command = ["explain", "examples.matmul:matmul", "--args", sizes, "--target", "cuda:90"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    assert ", warp roles)" in done.stdout
    assert "warp roles, warp roles" not in done.stdout
