"""Kernels on CPU tensors as native code: how it is chosen, shown and launched."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc
from tilesmith.jit import launchers
from tilesmith.runtime.launchers import cpu
from tilesmith.runtime.native.host_cpu import can_run, host_target
from tilesmith.runtime.native.machine_code import code_maker
from tilesmith.targets import parse_target


def scaled(x, alpha, shift):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * alpha + shift
    return out


def squares(x):
    n = hl.specialize(x.size(1))
    out = torch.empty([x.size(0), n], dtype=x.dtype)
    for row, column in hl.tile([x.size(0), n]):
        out[row, column] = x[row, column] * x[row, column]
    return out


@pytest.fixture
def native(tmp_path: Path):
    """The decorator for native code, with a cache of its own."""
    return lambda function, **settings: helion.kernel(
        function, backend="cpu", cache_dir=str(tmp_path), **settings
    )


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 31, 33, 1000, 4099])
def test_native_code_computes_what_torch_does(native, size: int):
    x = torch.randn(size)
    assert torch.equal(native(scaled)(x, 2.0, 3), x * 2 + 3)


def test_strided_tensors(native):
    kernel = native(scaled)
    x = torch.randn(40, 3)
    for view in (x[:, 1], x[::2, 0], x.t()[2], x[5:30, 2]):
        assert torch.equal(kernel(view, 0.5, -1), view * 0.5 - 1)


@pytest.mark.parametrize("shift", [0, -7, 2**31 - 1, 2**40, -(2**63), True])
def test_integers_of_every_width(native, shift: int):
    x = torch.arange(-5, 20)
    assert torch.equal(native(scaled)(x, 3, shift), x * 3 + shift)


def test_host_code_that_asks_the_language(native):
    x = torch.randn(9, 21)
    assert torch.equal(native(squares, static_shapes=False)(x), x * x)


def test_new_numbers_need_no_new_code(native, traces: list[str]):
    kernel = native(scaled)
    x = torch.randn(50)
    for alpha, shift in ((1.0, 0), (-2.5, 7), (1e10, -3)):
        assert torch.allclose(kernel(x, alpha, shift), x * alpha + shift)
    assert len(traces) == 1


def test_the_default_follows_the_target(native):
    bound = native(scaled).bind((torch.randn(5000), 1.0, 2))
    assert bound.target == host_target()
    assert bound.config_spec.target == host_target()
    assert "cpu_unroll" in bound.default_config()
    assert "num_warps" not in bound.default_config()
    assert bound.to_artifact().target == host_target()


def test_triton_code_is_shown_with_a_config_of_its_own(native):
    x = torch.randn(5000)
    bound = native(scaled).bind((x, 1.0, 2))
    bound(x, 1.0, 2)
    code = bound.to_triton_code()
    assert "@triton.jit" in code
    assert code == bound.to_code(form="triton") == bound.to_code(target="cuda:90")
    assert code == native(scaled).bind((x, 1.0, 2), target="cuda:90").to_code()


def test_a_chosen_config_shows_in_all_forms(native):
    bound = native(scaled).bind((torch.randn(5000), 1.0, 2))
    bound.set_config(helion.Config(block_sizes=[128]))
    assert "tl.constexpr(128)" in bound.to_triton_code()
    assert bound.to_code(form="llvm") == bound.to_code({"block_sizes": [128]}, form="llvm")
    assert bound.to_code(form="llvm") != bound.to_code({"block_sizes": [256]}, form="llvm")


def test_code_is_shown_as_loops_llvm_and_assembly(native):
    bound = native(scaled).bind((torch.randn(5000), 1.0, 2))
    assert bound.to_code() == bound.to_code(form="loops") == bound.to_artifact().readable
    assert "define " in bound.to_code(form="llvm")
    assert bound.to_code(form="assembly") == bound.to_code(form="asm")
    assert ".text" in bound.to_code(form="asm") or "__text" in bound.to_code(form="asm")


def test_loops_are_printed_when_they_are_read(native):
    artifact = native(scaled).bind((torch.randn(5000), 1.0, 2)).to_artifact()
    assert artifact.loops is not None
    assert "text" not in vars(artifact.loops)
    copy = pickle.loads(pickle.dumps(artifact))
    assert copy == artifact
    assert copy.readable == artifact.readable
    assert "parallel for" in copy.readable


def test_unknown_forms_are_refused(native):
    bound = native(scaled).bind((torch.randn(5), 1.0, 2))
    with pytest.raises(exc.InvalidArgumentValue, match=r"no form 'spirv'") as caught:
        bound.to_code(form="spirv")
    assert "loops, llvm, assembly, object" in str(caught.value)
    with pytest.raises(exc.InvalidArgumentValue, match=r"cuda:90 has no form 'amdgcn'") as caught:
        bound.to_code(form="amdgcn", target="cuda:90")
    assert "ttir, ttgir, llir, ptx, cubin" in str(caught.value)


@pytest.mark.parametrize(
    ("form", "part"),
    [
        ("ttir", "tt.func"),
        ("ttgir", "ttg.num-warps"),
        ("ptx", ".visible .entry _scaled"),
        ("amdgcn", "amdgcn-amd-amdhsa--gfx942"),
        ("cubin", b"\x7fELF"),
        ("hsaco", b"\x7fELF"),
        ("object", code_maker(host_target()).make_object("")[:4]),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_compiled_forms_of_a_kernel_on_a_cpu(native, form: str, part: str | bytes):
    code = native(scaled).bind((torch.randn(1000), 1.0, 2)).to_code(form=form)
    assert part in code


@pytest.mark.parametrize(
    ("name", "register"), [("avx512", "zmm"), ("avx2", "ymm"), ("sse", "xmm"), ("neon", "v0")]
)
def test_code_for_other_vectors(native, name: str, register: str):
    x = torch.randn(1000)
    bound = native(scaled).bind((x, 2.0, 3), target=f"cpu:{name}")
    assert register in bound.to_code(form="asm")
    if can_run(parse_target(f"cpu:{name}"), host_target()):
        assert torch.equal(bound(x, 2.0, 3), x * 2 + 3)
    else:
        with pytest.raises(exc.BackendUnsupported, match=f"running code for cpu:{name}"):
            bound(x, 2.0, 3)


def test_cpu_code_of_a_kernel_bound_for_a_gpu(native):
    bound = helion.kernel(scaled).bind((torch.randn(1000), 1.0, 2), target="cuda:90")
    assert "@triton.jit" in bound.to_code()
    assert "define " in bound.to_code(form="llvm")
    assert "ymm" in bound.to_code(form="asm", target="cpu:avx2")


def test_meta_tensors_show_code_and_refuse_to_run(native):
    bound = native(scaled).bind((torch.randn(1000, device="meta"), 1.0, 2))
    assert "define " in bound.to_code(form="llvm")
    with pytest.raises(exc.BackendUnsupported, match="device meta"):
        native(scaled)(torch.randn(1000, device="meta"), 1.0, 2)


def test_a_backend_for_other_devices_is_refused():
    with pytest.raises(exc.BackendUnsupported, match=r"running on cpu.* backend triton"):
        helion.kernel(scaled, backend="triton")(torch.randn(5), 1.0, 2)
    kernel = helion.kernel(scaled, backend="cpu")
    with pytest.raises(exc.BackendUnsupported, match=r"running on cuda:90 .* backend cpu"):
        kernel.bind((torch.randn(5), 1.0, 2), target="cuda:90")(torch.randn(5), 1.0, 2)


@pytest.mark.parametrize("is_asked", [True, False])
def test_the_loop_nest_is_printed_once_and_only_when_asked(native, is_asked: bool, capfd):
    kernel = native(scaled, print_output_code=is_asked)
    x = torch.randn(100)
    for _ in range(3):
        kernel(x, 1.0, 2)
    source = kernel.bind((x, 1.0, 2)).to_code()
    assert capfd.readouterr().err.count(source) == int(is_asked)


def test_outputs_of_host_code_are_fresh_memory_and_arguments_are_not(
    native, monkeypatch: pytest.MonkeyPatch
):
    def doubled_into(x, y):
        for tile in hl.tile(x.size(0)):
            y[tile] = x[tile] * 2

    advised: list[int] = []
    monkeypatch.setattr(cpu, "advise_huge_pages", lambda t: advised.append(t.numel()))
    large = torch.ones(1 << 20)
    native(scaled)(large, 2.0, 3)
    assert advised == [1 << 20]
    native(scaled)(large[:-1], 2.0, 3)
    native(doubled_into)(large, torch.empty_like(large))
    assert advised == [1 << 20]


def test_threads_come_from_the_settings(native, monkeypatch: pytest.MonkeyPatch):
    seen: list[cpu.LaunchOptions] = []

    def recorded(artifact, captured, constants, options):
        seen.append(options)
        return cpu.native_launcher(artifact, captured, constants, options)

    monkeypatch.setattr(launchers, "native_launcher", recorded)
    x = torch.randn(10)
    for count in (0, 3):
        native(scaled, num_threads=count)(x, 1.0, 2)
    assert [options.num_threads for options in seen] == [0, 3]


def test_compiled_code_is_kept_on_disk(native, tmp_path: Path):
    x = torch.randn(10)
    native(scaled)(x, 1.0, 2)
    (stored,) = (tmp_path / "native").iterdir()
    written = stored.stat().st_mtime_ns
    native(scaled)(x, 1.0, 2)
    assert [path.stat().st_mtime_ns for path in (tmp_path / "native").iterdir()] == [written]


def test_tensors_that_host_code_takes_elsewhere_are_refused(native):
    def onto_meta(x):
        out = torch.empty(x.size(0), device="meta")
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile]
        return out

    with pytest.raises(exc.UnsupportedArgumentType, match="`out` is a tensor on meta"):
        native(onto_meta)(torch.randn(5))


@helion.kernel
def ends_marked(x):
    out = torch.zeros_like(x)
    for tile_m, tile_n in hl.tile(x.size(), block_size=[16, 16]):
        out[tile_m.end, tile_n.end] = 1
    return out


def test_one_element_outside_of_the_tensor_is_not_written():
    # The ends of the last tiles are outside; the process went down with its heap.
    x = torch.zeros(64, 64)
    for _ in range(3):
        assert ends_marked(x).sum() == 12


@helion.kernel
def scattered(x, rows):
    out, counts = torch.zeros_like(x), torch.zeros_like(x[:, 0])
    for t in hl.tile(x.size(0)):
        out[rows[t], :] = x[t, :]
        hl.atomic_add(counts, [rows[t]], 1.0)
    return out, counts


def test_rows_outside_of_the_tensor_are_not_written():
    x, rows = torch.randn(5, 37), torch.tensor([1, 1 << 20, 3, -7, 4])
    expected, kept = torch.zeros_like(x), [0, 2, 4]
    expected[rows[kept]] = x[kept]
    for _ in range(3):
        out, counts = scattered(x, rows)
        assert torch.equal(out, expected)
        assert counts.tolist() == [0, 1, 0, 1, 1]
