"""Attention with warp roles, one call at a time: what a process of the device tests runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch

import tilesmith
import tilesmith.language as hl
from benchmarks.attention_forward import (
    FORMS,
    expected,
    rounded_scores,
    sliding_window,
    soft_cap,
)
from examples.attention import (
    LOG2_E,
    attention,
    attention_fwd,
    biased_attention,
    causal_attention,
    reference,
    reference_fwd,
)
from examples.attention_backward import (
    key_gradients,
    key_value_gradients,
    query_gradients,
    value_gradients,
)
from examples.attention_backward import reference as reference_gradients
from examples.causal_attention import reference_fwd as reference_causal_fwd
from examples.fp8_attention import FP8, fp8_attention
from examples.fp8_attention import reference as reference_fp8
from tilesmith import Config
from tilesmith.numerics.compare import check_against
from tilesmith.numerics.rounded_products import allowed_norm

FORM = "warp_roles"
Tensors = tuple[torch.Tensor, ...]


@tilesmith.kernel(static_shapes=True)
def shared_keys(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Heads share keys; every third query sees none, others see every second one."""
    m, n, head_dim = q.size(1), k.size(1), hl.specialize(q.size(2))
    group = q.size(0) // k.size(0)
    out = torch.empty_like(q)
    lse = torch.empty([q.size(0), m], dtype=torch.float32, device=q.device)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_h, tile_m in hl.tile([q.size(0), m], block_size=[1, None]):
        head = tile_h.begin
        peak = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_m, head_dim], dtype=torch.float32)
        queries = q[head, tile_m, :]
        for tile_n in hl.tile(n):
            scores = hl.dot(queries, k[head // group, tile_n, :].T) * scale
            is_seen = (tile_m.index % 3 != 0)[:, None] & (tile_n.index % 2 == 0)[None, :]
            scores = torch.where(is_seen, scores, float("-inf"))
            new_peak = torch.maximum(peak, scores.amax(-1))
            anchor = torch.where(new_peak == float("-inf"), 0.0, new_peak)
            weights = torch.exp2(scores - anchor[:, None])
            shrink = torch.exp2(peak - anchor)
            total = total * shrink + weights.sum(-1)
            values = v[head // group, tile_n, :]
            acc = hl.dot(weights.to(values.dtype), values, acc=acc * shrink[:, None])
            peak = new_peak
        is_empty = total == 0.0
        divisor = torch.where(is_empty, 1.0, total)
        out[head, tile_m, :] = (acc / divisor[:, None]).to(out.dtype)
        lse[head, tile_m] = torch.where(is_empty, 0.0, peak + torch.log2(divisor))
    return out, lse


def reference_shared(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    keys, values = (x.double().repeat_interleave(q.size(0) // k.size(0), 0) for x in (k, v))
    scores = q.double() @ keys.mT * (LOG2_E / math.sqrt(q.size(-1)))
    row, column = (torch.arange(x.size(1), device=q.device) for x in (q, k))
    seen = (row % 3 != 0)[:, None] & (column % 2 == 0)[None, :]
    scores = scores.masked_fill(~seen, float("-inf"))
    lse = torch.logsumexp(scores / LOG2_E, -1) * LOG2_E
    out = torch.softmax(scores / LOG2_E, -1).nan_to_num(0.0) @ values
    return out, lse.masked_fill(lse == float("-inf"), 0.0)


def reference_causal(*args: torch.Tensor) -> torch.Tensor:
    return reference(*args, causal=True)


def reference_of(kernel: Any) -> Callable[..., torch.Tensor]:
    """What a kernel of the benchmark computes, in fp64."""
    (form,) = (form for form in FORMS if form.kernel is kernel)
    return lambda *args: expected(form, (args[0], args[1], args[2]))


def reference_rounded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores rounded to bf16, and their multiples once more; the rest in fp64."""
    scores = (q.double() @ k.double().mT).to(q.dtype)
    powers = (scores.float() * (LOG2_E / math.sqrt(q.size(-1)))).to(q.dtype)
    return torch.softmax(powers.double() / LOG2_E, -1) @ v.double()


KERNELS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "plain": (attention, reference),
    "causal": (causal_attention, reference_causal),
    "bias": (biased_attention, reference),
    "lse": (attention_fwd, reference_fwd),
    "window": (sliding_window, reference_of(sliding_window)),
    "soft cap": (soft_cap, reference_of(soft_cap)),
    "rounded": (rounded_scores, reference_rounded),
    "fp8": (fp8_attention, reference_fp8),
    "shared": (shared_keys, reference_shared),
}


GRADIENTS: dict[str, tuple[Any, slice]] = {
    "queries": (query_gradients, slice(0, 1)),
    "keys and values": (key_value_gradients, slice(1, 3)),
    "keys": (key_gradients, slice(1, 2)),
    "values": (value_gradients, slice(2, 3)),
}
"""Kernels, and which of the three gradients they compute; "causal" may stand before a kind."""


@dataclass(frozen=True)
class Case:
    """One kernel, one length of queries and keys, one config."""

    kind: str
    length: int
    head_dim: int
    layout: str = "whole"
    seed: int | None = None
    """Of a random config of the form; None: its default."""
    repeats: int = 3
    heads: int = 3
    dtype: torch.dtype = torch.bfloat16

    def __str__(self) -> str:
        config = "" if self.seed is None else f"-seed{self.seed}"
        config += "-fp16" * (self.dtype == torch.float16)
        return f"{self.kind}-{self.heads}x{self.length}x{self.head_dim}-{self.layout}{config}"

    @property
    def gradient(self) -> str | None:
        """Which gradient a case is about."""
        kind = self.kind.removeprefix("causal ")
        return kind if kind in GRADIENTS else None

    @property
    def is_copied(self) -> bool:
        """Whether tiles can be copied, and multiplied.

        One row is no axis, fp8 has whole tiles only, what is expanded has no strides, and products
        have powers of two for columns.
        """
        is_whole = self.length > 1 and (self.kind != "fp8" or self.length % 64 == 0)
        is_power = not self.head_dim & (self.head_dim - 1)
        return is_whole and is_power and self.layout != "expanded"


def make_tensor(case: Case, device: str) -> torch.Tensor:
    """``[heads, length, head_dim]`` in memory as the case says."""
    n, d = case.length, case.head_dim
    sizes = {
        "whole": (case.heads, n, d),
        "strided": (n, case.heads, d),
        "sliced": (case.heads, n + 1, 2 * d),
        "transposed": (case.heads, d, n),
        "expanded": (1, n, d),
        "misaligned": (case.heads * n * d + 3,),
    }
    made = torch.randn(sizes[case.layout], device=device, dtype=case.dtype)
    if case.layout == "expanded":
        return made.expand(case.heads, n, d)
    if case.layout == "misaligned":
        return made[3:].view(case.heads, n, d)
    if case.layout == "strided":
        return made.transpose(0, 1)
    if case.layout == "sliced":
        return made[:, 1:, d:]
    return made.transpose(1, 2) if case.layout == "transposed" else made


def make_args(case: Case, device: str) -> tuple[Any, ...]:
    torch.manual_seed(case.length)
    args = tuple(make_tensor(case, device) for _ in range(3))
    if case.gradient is not None:
        return make_gradient_args(case, args)
    if case.kind == "shared":
        return make_tensor(replace(case, heads=case.heads * 3), device), *args[1:]
    if case.kind == "fp8":
        q, k, v = (arg.to(FP8) for arg in args)
        return q, k, v.transpose(1, 2).contiguous()
    if case.kind != "bias":
        return args
    size = (case.heads, case.length, case.length)
    return *args, torch.randn(size, device=device, dtype=case.dtype)


def make_gradient_args(case: Case, args: Tensors) -> tuple[Any, ...]:
    """What kernels of gradients take, from the exact results of the forward."""
    is_causal, grads = case.kind.startswith("causal "), torch.randn_like(args[0])
    out, lse = (reference_causal_fwd if is_causal else reference_fwd)(*args)
    inner = (grads.double() * out.to(grads.dtype).double()).sum(-1).float()
    if case.gradient == "values":
        return grads, *args[:2], lse.float(), is_causal
    return grads, *args, lse.float(), inner, is_causal


def check_gradients(case: Case, found: list[torch.Tensor], device: str) -> None:
    """Norms by what is rounded; rows differ in scale, so an error by the largest element."""
    torch.manual_seed(case.length)
    q, k, v = (make_tensor(case, device) for _ in range(3))
    grads, is_causal = torch.randn_like(q), case.kind.startswith("causal ")
    out, lse = (reference_causal_fwd if is_causal else reference_fwd)(q, k, v)
    tensors = (grads, q, k, v, out.to(q.dtype), lse.float())
    part = GRADIENTS[case.gradient or ""][1]
    wanted = reference_gradients(*tensors, is_causal=is_causal)[part]
    factors = gradient_factors(tensors, is_causal)[part]
    for result, exact, (left, right) in zip(found, wanted, factors):
        error = (result.double() - exact).abs()
        # A single key has no gradient but what rounding leaves.
        least = 4e-5 * grads.double().norm()
        allowed = max(allowed_norm(left, right, q.dtype), float(least))
        assert error.norm() <= allowed, f"{error.norm()} of {exact.norm()}, allowed {allowed}"
        assert error.max() <= 2e-2 * max(exact.abs().max(), 0.01), f"{error.max()}"


def gradient_factors(tensors: Tensors, is_causal: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For queries, keys and values: what is rounded, and what it is multiplied by then."""
    grads, q, k, v, out, lse = (tensor.double() for tensor in tensors)
    scale = 1 / math.sqrt(q.size(-1))
    weights = torch.exp2(q @ k.mT * (LOG2_E * scale) - lse[..., None])
    weights = weights.tril() if is_causal else weights
    scores = weights * (grads @ v.mT - (grads * out).sum(-1, keepdim=True))
    return [(scores, k * scale), (scores.mT, q * scale), (weights.mT, grads)]


def choose_config(case: Case, bound: Any) -> Config | None:
    """The config that a case is about; None where the kernel must not have the form."""
    spec = bound.config_spec.forms().get(FORM)
    assert (spec is not None) == case.is_copied, "the form fits where it should not, or not here"
    if spec is None:
        return None
    config = spec.default_config() if case.seed is None else spec.random_config(Random(case.seed))
    return config.updated(structure=FORM)


def row_ranges(case: Case) -> list[tuple[int, int]]:
    """Rows of about the same scale: early rows of causal attention are sums of few values."""
    if case.kind not in ("causal", "window"):
        return [(0, case.length)]
    edges = [0, *(1 << e for e in range(case.length.bit_length()) if 1 << e < case.length)]
    return list(zip(edges, [*edges[1:], case.length]))


def run_case(case: Case, device: str = "cuda") -> str:
    """Run a case several times; the config it ran with. Raises where the result is wrong."""
    kernel = KERNELS[case.kind][0] if case.gradient is None else GRADIENTS[case.gradient][0]
    args = make_args(case, device)
    bound = kernel.bind(args)
    config = choose_config(case, bound)
    run = bound if config is None else bound.compile_config(config)
    found = _listed(run(*args))
    if case.gradient is None:
        check_outputs(case, found, _listed(KERNELS[case.kind][1](*args)))
    else:
        check_gradients(case, found, device)
    for _ in range(case.repeats - 1):
        again = _listed(run(*args))
        assert all(map(torch.equal, found, again)), f"{config}: results differ between calls"
    return str(config)


def check_outputs(case: Case, found: list[torch.Tensor], exact: list[torch.Tensor]) -> None:
    """Weights are rounded to the type of the values before the second product."""
    if case.kind == "rounded":
        # Sums in another order round some scores the other way: single numbers may be far off.
        (result,), (wanted,) = found, exact
        assert (result.double() - wanted).norm() <= 4e-3 * wanted.norm()
        return
    for result, wanted in zip(found, exact):
        for begin, end in row_ranges(case):
            check_against(
                result[:, begin:end],
                wanted[:, begin:end],
                reduction_length=case.length if len(row_ranges(case)) == 1 else max(2, end),
                intermediate=FP8 if case.kind == "fp8" else case.dtype,
            )


def _listed(found: Any) -> list[torch.Tensor]:
    return list(found) if isinstance(found, tuple) else [found]
