"""A saved module refuses what its device code was not made for, and says what that was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.compiler.test_module_source import SMALL, saved
from tilesmith.artifacts import load_module


@helion.kernel
def scaled(x, flag: bool, factor: int, function=lambda a: a):
    k = hl.specialize(factor)
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = function(x[t, :] * k) if flag else x[t, :]
    return out


@helion.kernel(static_shapes=False)
def shifted(x, n: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = x[t, :] + n
    return out


def negated(a):
    return -a


X = torch.randn(6, 10)
GIVEN = (X, True, 3)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """The host function of a saved module, with a launch that is only noted."""

    def load_saved(kernel: Any, *args: Any, **settings: Any) -> Any:
        config = helion.Config.from_dict({"block_sizes": [4], **settings})
        path = Path(tmp_path_factory.mktemp("saved")) / "saved.py"
        path.write_text(saved(kernel, args, config))
        module: Any = load_module(path)
        module.launch = lambda *_: None
        return getattr(module, kernel.name)

    return load_saved


@pytest.fixture(scope="module")
def host(load: Callable[..., Any]) -> Any:
    return load(scaled, *GIVEN)


def test_what_it_was_made_for_is_accepted(host: Any) -> None:
    assert host(*GIVEN).shape == X.shape
    assert host(torch.nn.Parameter(X), True, 3).shape == X.shape


@pytest.mark.parametrize(
    ("args", "made_for", "given"),
    [
        ((X[:5], True, 3), r"x: torch.float32, sizes \(6, 10\)", r"sizes \(5, 10\)"),
        ((X.T.contiguous().T, True, 3), r"strides \(10, 1\)", r"strides \(1, 6\)"),
        ((X.double(), True, 3), "torch.float32", "torch.float64"),
        ((X[None], True, 3), r"sizes \(6, 10\)", r"sizes \(1, 6, 10\)"),
        ((X, False, 3), "flag", "False"),
        ((X, True, 4), "k", "4"),
        ((X, True, 3, negated), "function is scaled.__defaults__", "False"),
    ],
    ids=["size", "stride", "dtype", "rank", "constant", "specialized", "function"],
)
def test_another_value_is_refused(host: Any, args: Any, made_for: str, given: str) -> None:
    with pytest.raises(ValueError, match=f"this module was made for .*{made_for}.*given.*{given}"):
        host(*args)


def test_a_function_that_was_given_is_known_by_its_name(load: Callable[..., Any]) -> None:
    host = load(scaled, *GIVEN, negated)
    assert host(*GIVEN, negated) is not None
    with pytest.raises(ValueError, match=r"function.__name__.*negated.*<lambda>"):
        host(*GIVEN)


def test_runtime_sizes_are_free_where_the_trace_left_them_free(load: Callable[..., Any]) -> None:
    host = load(shifted, X, 5)
    assert host(torch.randn(33, 70), -9).shape == (33, 70)
    with pytest.raises(ValueError, match=r"sizes \(None, None\).*given.*sizes \(1, 10\)"):
        host(X[:1], 5)
    with pytest.raises(ValueError, match=r"strides \(None, 1\).*given.*strides \(1, 6\)"):
        host(X.T.contiguous().T, 5)
    with pytest.raises(ValueError, match=r"2147483647 <= n <= .*given False"):
        host(X, 2**31)


def test_offsets_beyond_31_bits_are_refused(load: Callable[..., Any]) -> None:
    host = load(shifted, X, 5)
    wide = torch.empty(2**16 + 1, 2**15 + 1, dtype=torch.float32, device="meta")
    with pytest.raises(ValueError, match="offsets up to 2147483647; and was given"):
        host(wide, 5)


@helion.kernel(static_shapes=False)
def shifted_tiles(x, n: int):
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        out[t, u] = x[t, u] + n
    return out


@pytest.mark.parametrize(("block", "most"), [(1, 65_535), (2, 131_070)])
def test_more_programs_than_a_launch_axis_has_are_refused(
    load: Callable[..., Any], block: int, most: int
) -> None:
    """The driver refused such a launch with "invalid argument"."""
    wide = {"block_sizes": [block, 64], "pid_type": "xyz", "loop_orders": [[1, 0]]}
    host = load(shifted_tiles, X, 5, **wide)
    assert host(torch.empty(most, 3, device="meta"), 5).shape == (most, 3)
    with pytest.raises(ValueError, match=r"at most 65535 programs along launch axis 1"):
        host(torch.empty(most + 1, 3, device="meta"), 5)
    # Along the first axis there may be more.
    assert host(torch.empty(3, 1 << 23, device="meta"), 5) is not None


def test_tensors_must_be_on_one_device(load: Callable[..., Any]) -> None:
    @helion.kernel
    def added(x, y):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t, :] = x[t, :] + y[t, :]
        return out

    host = load(added, X, X)
    with pytest.raises(ValueError, match=r"tensors on one device.*type='cpu'.*type='meta'"):
        host(X, X.to("meta"))


def test_descriptors_want_aligned_tensors(load: Callable[..., Any]) -> None:
    @helion.kernel
    def copied(x):
        out = torch.empty_like(x)
        for t, u in hl.tile(x.size()):
            out[t, u] = x[t, u]
        return out

    aligned = torch.randn(64, 64)
    host = load(copied, aligned, block_sizes=[16, 16], indexing="tensor_descriptor")
    assert host(aligned).shape == (64, 64)
    with pytest.raises(ValueError, match=r"x.data_ptr\(\) % 16 = 0, and was given 4"):
        host(torch.randn(64 * 64 + 1)[1:].view(64, 64))


def test_arguments_that_are_written_want_memory_of_their_own(load: Callable[..., Any]) -> None:
    @helion.kernel
    def stored(x, out):
        for t in hl.tile(x.size(0)):
            out[t, :] = x[t, :] + 1
        return out

    x, out = X.clone(), X.clone()
    host = load(stored, x, out)
    assert host(out, x) is x
    with pytest.raises(ValueError, match=r"x and out in memory of their own = True.*given False"):
        host(x, x)
    assert load(stored, x, x)(x, x) is x


def test_names_of_host_code_win(load: Callable[..., Any]) -> None:
    @helion.kernel
    def require(require_tensor):
        out = torch.empty_like(require_tensor)
        for t in hl.tile(require_tensor.size(0)):
            out[t, :] = require_tensor[t, :] + 1
        return out

    host = load(require, X)
    assert host(X).shape == X.shape
    with pytest.raises(ValueError, match="this module was made for require_tensor"):
        host(X[:3])


def test_checks_stand_in_the_host_function_only() -> None:
    """Device code and its launcher are the same text as in the artifact that launches use."""
    bound = scaled.bind(GIVEN, target="cuda:90")
    device_code = bound.to_artifact(SMALL).source.partition("\n\n")[2]
    assert device_code in bound.to_triton_code(SMALL)
    assert "require" not in device_code
