"""Settings that shape or show the generated code."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.artifacts import Artifact
from tilesmith.jit import launchers
from tilesmith.targets import parse_target


def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


class RecordingLauncher:
    """Stands for the GPU: keeps the artifact, launches nothing."""

    path = "double.py"

    def __init__(self, artifact: Artifact, *_: Any) -> None:
        self.artifact = artifact

    def launch(self, *_: Any) -> None:
        return None


def test_origin_lines_can_be_left_out():
    x = torch.empty(8)
    assert "# src[" in helion.kernel(double).bind((x,)).to_triton_code()
    plain = helion.kernel(double, output_origin_lines=False)
    assert "# src[" not in plain.bind((x,)).to_triton_code()


@pytest.mark.parametrize("is_asked", [True, False])
def test_output_code_is_printed_once_and_only_when_asked(
    is_asked: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(launchers, "triton_launcher", RecordingLauncher)
    kernel = helion.kernel(double, print_output_code=is_asked)
    bound = kernel.bind((torch.ones(8),), target=parse_target("cuda:90"))
    for _ in range(3):
        bound(torch.ones(8))
    assert capsys.readouterr().err.count("def _double(") == int(is_asked)


@helion.kernel(config=helion.Config(block_size=64))
def copy_by_a_registered_block(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    block = hl.register_block_size(x.size(0))
    for tile in hl.tile(x.size(0), block_size=block):
        out[tile] = x[tile]
    return out


def test_a_single_block_size_is_that_of_a_registered_block():
    x = torch.randn(500)
    bound = copy_by_a_registered_block.bind((x,))
    assert torch.equal(copy_by_a_registered_block(x), x)
    assert bound.to_triton_code() == bound.to_triton_code(helion.Config(block_sizes=[64]))
    assert "block = 64" in bound.to_triton_code()
    assert bound.order_dependence(helion.Config(block_size=64)) == ""


@helion.kernel
def with_names_of_triton(x: torch.Tensor, tl: torch.Tensor) -> torch.Tensor:
    triton = torch.empty_like(x)
    libdevice = helion.cdiv(x.size(0), 3)
    for tile in hl.tile(x.size(0)):
        tl_math = x[tile] + tl[tile]
        triton[tile] = tl_math + libdevice
    return triton


def test_variables_may_have_the_names_of_triton_s_modules():
    x = torch.arange(10.0)
    assert torch.equal(with_names_of_triton(x, x), 2 * x + 4)
    code = with_names_of_triton.bind((x, x)).to_triton_code()
    assert "def _with_names_of_triton(x, tl_1, triton_1):" in code
    assert "libdevice = triton_module.cdiv(x.size(0), 3)" in code
    compile(code, "generated", "exec")


@helion.kernel
def with_tensors_of_the_language(x: torch.Tensor) -> torch.Tensor:
    out, add = hl.zeros([x.size(0)], torch.float32), hl.full(shape=[x.size(0)], value=2.0)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + add[tile]
    return out


def test_tensors_that_the_language_makes_on_the_host_are_torch_s():
    code = with_tensors_of_the_language.bind((torch.randn(8),)).to_triton_code()
    assert "torch.zeros([x.size(0)], dtype=torch.float32, device=x.device)" in code
    assert "torch.full(size=[x.size(0)], fill_value=2.0, dtype=torch.float32, device" in code


@helion.kernel
def two_launches(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + 1
    again = out + 1
    for t in hl.tile(x.size(0)):
        out[t] = again[t] * 2
    return out


@pytest.mark.parametrize("kernel", [helion.kernel(double), two_launches])
def test_a_module_can_call_its_kernel(kernel: Any):
    bound = kernel.bind((torch.empty(8)[::2],))
    plain = bound.to_triton_code(target="cuda:90")
    text = bound.to_triton_code(target="cuda:90", emit_repro_caller=True)
    assert text.startswith(plain.rstrip())
    assert 'if __name__ == "__main__":\n    print(call())' in text
    scope: dict[str, Any] = {"__name__": "module", "torch": torch}
    exec(text[len(plain) :], scope)
    scope[kernel.name] = lambda x: x
    made = scope["call"]()
    assert (made.shape, made.stride(), made.dtype) == ((4,), (2,), torch.float32)


def test_lines_are_named_as_a_call_asks():
    x = torch.empty(8)
    for shown in (True, False):
        bound = helion.kernel(double, output_origin_lines=shown).bind((x,))
        assert ("# src[" in bound.to_triton_code()) is shown
        assert ("# src[" in bound.to_triton_code(output_origin_lines=not shown)) is not shown
        texts = [bound.to_code(form="loops", output_origin_lines=lines) for lines in (True, False)]
        assert bound.to_code(form="loops") == texts[not shown]
        assert texts[0] != texts[1]


def test_code_has_no_other_options():
    bound: Any = helion.kernel(double).bind((torch.empty(8),))
    staged: Any = two_launches.bind((torch.ones(8),))
    for show in (bound.to_triton_code, bound.to_code, staged.to_triton_code):
        with pytest.raises(TypeError, match="emit_repro_call"):
            show(emit_repro_call=True)
