"""Code of the user's own: it compiles for a GPU, and computes what it says when interpreted."""

from __future__ import annotations

import pytest
import torch

from tests.backends.triton import inline_kernels as kernels
from tilesmith.backends.triton.build import compile_artifact

SIZES = [1, 16, 37]


def artifact_of(kernel, *args):
    return kernel.bind(args, target="cuda:90").to_artifact()


def launched(run, kernel, *args):
    """The output of the kernel's launch, which stands last."""
    out = torch.full_like(args[0], float("nan"))
    return run(artifact_of(kernel, *args), *args, out)[-1]


@pytest.mark.parametrize("n", SIZES)
def test_an_expression(run, n):
    x = torch.randn(n)
    assert torch.equal(launched(run, kernels.expression, x), torch.where(x > 0, x, 5.0))


@pytest.mark.parametrize("n", SIZES)
def test_variables_of_inline_code_are_its_own(run, n):
    x = torch.randn(n)
    found = launched(run, kernels.statements_with_names, x)
    torch.testing.assert_close(found, x * 2 + (x + 1) + (x + 1))


@pytest.mark.parametrize("n", SIZES)
def test_what_inline_code_stores_is_seen_by_later_loads(run, n):
    x, marks = torch.randn(n), torch.zeros(n)
    out = torch.empty_like(x)
    artifact = artifact_of(kernels.store_through_a_pointer, x, marks)
    assert artifact.source.index("tl.debug_barrier()") > artifact.source.index("tl.store(marks")
    given = {"x": x, "marks": marks, "out": out}
    run(artifact, *(given[parameter.name] for parameter in artifact.parameters))
    expected = torch.zeros(n)
    expected[:3] = (x * 2)[:3]
    found = run(artifact, *(given[parameter.name] for parameter in artifact.parameters))
    assert torch.equal(found[-1], expected)


@pytest.mark.parametrize("n", SIZES)
def test_several_results(run, n):
    x = torch.randn(n) * 4
    assert torch.equal(launched(run, kernels.two_results, x), (x + 1) * x.to(torch.int32))


def test_inline_code_sees_axes_of_length_one(run):
    x = torch.randn(3, 7)
    torch.testing.assert_close(
        launched(run, kernels.matrix_with_rows_of_one, x), x.sum(1, keepdim=True) + x
    )


@pytest.mark.parametrize("n", SIZES)
def test_jitted_functions_bring_their_helpers_and_constants(run, n):
    x, y = torch.randn(n), torch.randn(n)

    def combine(a, b, k):
        return torch.minimum(a * 3, torch.tensor(2.0)) + b * k

    expected = combine(x, y, 4) + combine(y, x, 2) + (x + 1 + x)
    torch.testing.assert_close(launched(run, kernels.jitted_function, x, y), expected)
    source = artifact_of(kernels.jitted_function, x, y).source
    for definition in ("def combine(", "def scaled(", "def plus_one(", "SCALE = tl.constexpr(3)"):
        assert source.count(definition) == 1


def test_assembly_compiles_and_is_there():
    info = compile_artifact(artifact_of(kernels.assembly, torch.ones(37), torch.ones(37)))
    for instruction in ("ex2.approx.f32", "min.f32", "max.f32", "mov.u32"):
        assert instruction in info.assembly["ptx"]


def test_pure_assembly_is_merged_and_impure_stays():
    x = torch.ones(8)
    pure = artifact_of(kernels.pure_assembly_twice, x).source
    impure = artifact_of(kernels.impure_assembly_twice, x).source
    assert pure.count("tl.inline_asm_elementwise(") == 1
    assert impure.count("tl.inline_asm_elementwise(") == 3


def test_a_result_of_another_type_than_promised_does_not_compile():
    with pytest.raises(Exception, match="as output_like says"):
        compile_artifact(artifact_of(kernels.wrong_type, torch.ones(8)))


def test_source_of_inline_code(golden):
    golden(artifact_of(kernels.jitted_function, torch.ones(37), torch.ones(37)).source)
