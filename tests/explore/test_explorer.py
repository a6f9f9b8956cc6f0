"""What ``bound.explore()`` gives: data, a page that stands alone, two configs, honest gaps."""

from __future__ import annotations

import json
import re

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.attention import attention
from examples.softmax import softmax
from tilesmith.cli.explain import stage_lines
from tilesmith.explore import machine_code
from tilesmith.explore.costs import NotHereError, measure_ms, neighbours

EVIL = '</script><script>alert("x")</script><!--'


@pytest.fixture(scope="module")
def bound():
    return softmax.bind((torch.randn(64, 128),))


@pytest.fixture(scope="module")
def data(bound) -> dict:
    return bound.explore().data


def test_all_parts_are_there(data):
    (view,) = data["views"]
    assert view["stages"][0]["stage"] == "TRACE"
    assert {"STANDARD", "TRACE"} <= {stage["stage"] for stage in view["stages"]}
    assert all(stage["reason"].endswith(".") for stage in view["stages"])
    assert view["emitted"]["title"] == "loops"
    assert [column["title"] for column in view["machine"]] == ["assembly"]
    assert view["schedule"]["text"].count("parallel for") == 1
    assert view["tiles"]["programs"]
    assert "facts of softmax" in data["facts"]
    assert data["ranked"][0]["config"] == view["config"]


def test_lines_and_places_agree_in_number(data):
    (view,) = data["views"]
    columns = [data["source"], *view["stages"], view["schedule"], view["emitted"], *view["machine"]]
    for column in columns:
        assert len(column["text"].split("\n")) == len(column["places"])
        assert max(column["places"]) < len(data["places"])


def instructions(lines: list[str]) -> list[str]:
    shown = (line.strip() for line in lines if line[:1].isspace())
    return [re.sub(r"\s+", " ", line) for line in shown if line and line[0] != "."]


def test_assembly_is_that_of_code_that_runs_and_leads_to_lines(bound, data):
    (assembly,) = data["views"][0]["machine"]
    lines = assembly["text"].split("\n")
    assert instructions(lines) == instructions(bound.to_code(form="asm").split("\n"))
    placed = zip(lines, assembly["places"])
    linked = [data["places"][place] for line, place in placed if "vmaxps" in line or "max" in line]
    texts = data["source"]["text"].split("\n")
    assert linked
    assert any("softmax(" in texts[row] for rows in linked for row in rows)


def test_the_text_of_code_that_runs_has_no_marks(bound):
    assert "; mark" not in bound.to_code(form="llvm")


def test_the_page_stands_alone(bound):
    html = bound.explore().html
    assert not re.search(r"""(src|href)=["'](?!#)""", html)
    assert not re.search(r"@import|fetch\(|XMLHttp|import\(|url\(", html)
    # The name of a namespace is no address.
    assert set(re.findall(r"https?://[^\"' ]+", html)) <= {"http://www.w3.org/2000/svg"}


def test_data_cannot_end_its_element():
    @tilesmith.kernel
    def tagged(x: torch.Tensor, tag: str) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] + 1  # </script><!--
        return out

    page = tagged.bind((torch.randn(8), EVIL)).explore()
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.html)
    assert json.loads(found[0]) == json.loads(json.dumps(page.data))
    assert "</script><!--" in page.data["source"]["text"]
    assert page.html.count("<script") == 2


def test_notebooks_show_it_in_a_frame(bound):
    shown = bound.explore()._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert shown.count("<iframe") == 1
    assert "explorer of softmax" in repr(bound.explore())


def test_two_configs_have_two_views(bound):
    made = bound.explore(beside=tilesmith.Config(block_sizes=[8]))
    first, second = made.data["views"]
    assert (first["label"], second["label"]) == ("default", "given")
    assert "by 8" in second["schedule"]["text"]
    assert "by 8" not in first["schedule"]["text"]


def test_a_measured_time_is_beside_the_predicted_one(bound):
    view = bound.explore(measured_ms=0.125).data["views"][0]
    assert view["costs"]["measured_ms"] == 0.125
    assert measure_ms(bound, None) > 0.0


def test_what_is_not_here_is_not_measured():
    with pytest.raises(NotHereError, match="cuda:90 is not here"):
        measure_ms(softmax.bind((torch.randn(8, 8),), target="cuda:90"), None)


def test_neighbours_cost_what_the_model_says():
    bound = softmax.bind((torch.randn(4096, 1024),), target="cuda:90")
    spec, config = bound.config_spec, bound.default_config()
    found = {(item["key"], item["to"]): item for item in neighbours(spec, config)}
    keys = [key for key in found if key[0] == "num_warps"]
    assert keys
    key = keys[0]
    changed = spec.predict(spec.normalize(config).updated(num_warps=int(key[1])))
    assert found[key]["ms"] == changed.total_ms
    assert found[key]["from"] == repr(spec.normalize(config)["num_warps"])


def test_without_a_disassembler_the_page_says_so(monkeypatch):
    monkeypatch.setattr(machine_code, "find_spec", lambda name: None)
    view = softmax.bind((torch.randn(64, 128),), target="cuda:90").explore().data["views"][0]
    assert [column["title"] for column in view["machine"]] == ["PTX"]
    assert "no SASS" in view["built"]["notes"][0]
    assert view["built"]["registers"] is None


def test_stages_of_a_structure_of_the_backend_can_be_watched():
    """Configs with warp roles raised ``ValueError`` in ``explain --stages``."""
    args = tuple(torch.randn(1, 2, 256, 128, dtype=torch.bfloat16) for _ in range(3))
    bound = attention.bind(args, target="cuda:90")
    roles = next(
        item.config
        for item in bound.config_spec.ranked_configs(20)
        if item.config.get("structure") == "warp_roles"
    )
    assert "== EMIT" in "\n".join(stage_lines(bound, roles))


@tilesmith.kernel
def shares(x: torch.Tensor) -> torch.Tensor:
    """Two launches, with a sum of the host's between them."""
    sums = torch.empty([x.size(0)])
    for row in hl.tile(x.size(0)):
        sums[row] = x[row, :].sum(1)
    total = sums.sum()
    out = torch.empty_like(x)
    for a, b in hl.tile(x.size()):
        out[a, b] = x[a, b] / total[()]
    return out


def test_each_launch_has_its_part():
    bound = shares.bind((torch.randn(16, 24),))
    page = bound.explore()
    first, second = page.data["launches"]
    assert [tensor["name"] for tensor in first["views"][0]["tiles"]["tensors"]] == ["x", "sums"]
    assert "out" in [tensor["name"] for tensor in second["views"][0]["tiles"]["tensors"]]
    assert page.html.count("<!DOCTYPE html>") == 1
    assert page.picture().count("<svg ") == 1
    assert page.picture().count("program 0 of ") == 2
    blocks = tilesmith.Config(block_sizes=[4, 8, 8])
    beside = bound.explore(beside=blocks).data["launches"]
    assert [view["label"] for view in beside[1]["views"]] == ["default", "given"]
    assert beside[1]["views"][1]["tiles"]["grids"][0]["counts"] == (2, 3)


@tilesmith.kernel
def partial_sums(x: torch.Tensor) -> torch.Tensor:
    """A result whose size depends on a block size."""
    group = hl.register_block_size(x.size(0))
    out = torch.empty([tilesmith.cdiv(x.size(0), group)])
    for tile in hl.tile(x.size(0), block_size=group):
        out[tile.id] = x[tile].sum()
    return out


def test_a_config_is_looked_at_in_its_own_trace():
    bound = partial_sums.bind((torch.randn(16),), target="cpu:avx2")
    config = tilesmith.Config(block_sizes=[4])
    (view,) = bound.explore(config).data["views"]
    assert "out: tensor<f32[4]" in view["stages"][0]["text"]
    stored = [program["steps"][-1][2][-1] for program in view["tiles"]["programs"]]
    assert [box[2:] for box in stored] == [[0, 1], [1, 1], [2, 1], [3, 1]]
    assert "out: tensor<f32[4]" in "\n".join(stage_lines(bound, config))


def test_a_picture_shows_a_moment():
    bound = softmax.bind((torch.randn(6, 8),), target="cpu:avx2")
    page = bound.explore(tilesmith.Config(block_sizes=[2]))
    picture = page.picture((0, 0), (2, -1))
    for words in ("program 0 of 3 (tile_m=0): load x, store out", "program 2 of 3 (tile_m=4)"):
        assert words in picture
    now = re.findall(
        r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="([\d.]+)" fill="#d55e00"/>', picture
    )
    assert [tuple(map(float, box)) for box in now] == [
        *2 * [(0, 0, 150, 37.5)],
        *2 * [(0, 75, 150, 37.5)],
    ]
    with pytest.raises(IndexError):
        page.picture((3, 0))
