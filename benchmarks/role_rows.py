"""What the table of warp roles has lines for: our default configs, their rivals, and the goals.

``roles_table`` builds these in worker processes and times them. Without a GPU shapes are tiny, to
try all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

import torch

from benchmarks import attention_backward as backward
from benchmarks import attention_forward as forward
from benchmarks.checking import results_of
from benchmarks.gpu_defaults import capture_or_keep
from benchmarks.product_cases import CASES, DEVICE, HELD, Case
from benchmarks.products import Measurement
from benchmarks.suites import jagged, recurrence
from examples import attention_backward as gradients
from examples.attention import attention
from examples.fp8_attention import fp8_attention
from examples.gdn_fwd_h import gdn_fwd_h
from examples.jagged_hstu_attn_2 import jagged_hstu_attn_2
from examples.mamba2_chunk_scan import mamba2_chunk_scan
from tilesmith.bench.case import Operator

Call = Callable[[], Any]
LONGEST_BUILD_S = 3.0
SLOWER_BY_ROUNDING = 1.08
TINY_LENGTH, TINY_SIDE, BUILD_S = 48, 40, 80.0


@dataclass
class Built:
    """One line, ready to be checked and timed."""

    ours: Call
    rivals: dict[str, Call]
    error: Callable[[Any], float]
    """Of a result of ours, against fp64: the norm of what is wrong over that of what is right."""
    forms: list[str] = field(default_factory=list[str])
    compile_s: float = 0.0
    """Of the kernel that took longest, from its config to its first result."""
    then_ms: float = 0.0
    """Ours when the goal was set, where that is the rival."""

    def add(self, kernel: Any, args: tuple[Any, ...], config: Any = None) -> Call:
        """Build a kernel with its default config, and note how long that took."""
        given = kernel.normalize_args(*args)
        bound = kernel.bind(given)
        chosen = bound.config_spec.default_config() if config is None else config
        start = perf_counter()
        compiled = bound.compile_config(chosen)
        compiled(*given)
        synchronize()
        self.compile_s = max(self.compile_s, perf_counter() - start)
        self.forms.append(str(chosen.get("structure") or "-"))
        return partial(compiled, *given)


def synchronize() -> None:
    """Wait for the device, if there is one."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True)
class Line:
    """One line of the table, before anything of it is made."""

    name: str
    goal: float | None
    build: Callable[[], Built]


def _sized(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if DEVICE == "cuda" else (1, 2, TINY_LENGTH, shape[-1])


def _nothing() -> None:
    """Stands for a call that is still to be made."""


def _forward(form: forward.Form, shape: tuple[int, ...]) -> Built:
    tensors = forward.inputs(_sized(shape))
    given = tuple(forward.given_to(form, tensors))
    shape = tuple(tensors[0].shape)
    built = Built(_nothing, {}, lambda out: forward.error(form, tensors, out.view(shape)))
    built.ours = built.add(form.kernel, given)
    built.rivals = forward.rivals(tensors, is_causal=form.is_causal)
    return built


def _rounded(shape: tuple[int, ...]) -> Built:
    """Beside plain attention of ours, which is the goal."""
    built = _forward(forward.FORMS[2], shape)
    plain = _forward(forward.FORMS[0], shape)
    built.rivals = {"our plain scores": plain.ours, **built.rivals}
    return built


def _backward(shape: tuple[int, ...], *, is_causal: bool) -> Built:
    batch, heads, length, width = shape = _sized(shape)
    tensors = backward.inputs((batch * heads, length, width), is_causal=is_causal)
    run = partial(gradients.attention_backward, *tensors, is_causal=is_causal)
    built = Built(run, {}, lambda out: backward.error_of(out, tensors, is_causal=is_causal))
    for kernel, args in _gradient_kernels(tensors, is_causal=is_causal):
        built.add(kernel, args)
    built.rivals = backward.rivals(shape, tensors, is_causal=is_causal)
    return built


def _gradient_kernels(
    tensors: list[torch.Tensor], *, is_causal: bool
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """What ``attention_backward`` calls, one by one."""
    grads, q, k, v, out, lse = tensors
    yield gradients.row_products, (grads, out)
    args = (grads, q, k, v, lse, gradients.row_products(grads, out), is_causal)
    yield gradients.query_gradients, args
    if q.size(-1) <= gradients.WIDEST_PAIR:
        yield gradients.key_value_gradients, args
    else:
        yield gradients.key_gradients, args
        yield gradients.value_gradients, (grads, q, k, lse, is_causal)


def _narrow(shape: tuple[int, ...]) -> Built:
    tensors = forward.inputs(_sized(shape))
    narrow = forward.narrowed(tensors)
    built = Built(_nothing, {}, partial(forward.fp8_error, narrow))
    built.ours = built.add(fp8_attention, tuple(narrow))
    wide = Built(_nothing, {}, built.error)
    built.rivals = {"our bf16": wide.add(attention, tensors)}
    return built


def _since(operator: Operator, ours: Any, then_ms: float) -> Built:
    """A kernel beside its form without roles; the goal is about its time when it was set."""
    chosen = operator.inputs_on(DEVICE)[2 if DEVICE == "cuda" else 0]
    args = chosen.make(torch.device(DEVICE), chosen.dtype)
    built = Built(_nothing, {}, partial(_error_of_all, operator.exact, args), then_ms=then_ms)
    built.ours = capture(built.add(ours, args))
    ranked = ours.bind(ours.normalize_args(*args)).config_spec.ranked_configs()
    plain = next(item.config for item in ranked if not item.config.get("structure"))
    other = Built(_nothing, {}, built.error)
    built.rivals = {"no roles": capture(other.add(ours, args, plain))}
    return built


def _error_of_all(exact: Callable[..., Any] | None, args: tuple[Any, ...], found: Any) -> float:
    assert exact is not None
    pairs = zip(results_of(found), results_of(exact(*args)))
    return max(float((f.double() - w).norm() / w.norm()) for f, w in pairs)


def _product(case: Case) -> Built:
    if DEVICE != "cuda":
        case = replace(case, m=TINY_SIDE, k=TINY_SIDE, n=TINY_SIDE)
    made = Measurement(case, BUILD_S)
    built = Built(_nothing, {}, made.error)
    start = perf_counter()
    config = made.bound.config_spec.default_config()
    ours = made.compiled(config)
    ours()
    synchronize()
    built.compile_s, built.forms = perf_counter() - start, [str(config.get("structure") or "-")]
    for call in made.rivals.values():
        call()
    built.ours = capture(ours)
    built.rivals = {name: capture(call) for name, call in made.rivals.items()}
    return built


def capture(work: Call) -> Call:
    """A graph of it, where there is a GPU."""
    return capture_or_keep(work)[0] if DEVICE == "cuda" else work


def _forward_lines() -> Iterator[Line]:
    goals = {128: (1.02, 1.0), 64: (1.02, 1.02), 256: (0.95, 0.95)}
    for shape in forward.SHAPES:
        for form, goal in zip(forward.FORMS[:2], goals[shape[-1]]):
            name = f"forward {text(shape)} {form.name}"
            yield Line(name, goal, partial(_forward, form, shape))
    for shape in forward.SHAPES[:2]:
        name = f"forward {text(shape)} {forward.FORMS[2].name}"
        yield Line(name, 1 / SLOWER_BY_ROUNDING, partial(_rounded, shape))


def _backward_lines() -> Iterator[Line]:
    for shape in forward.SHAPES:
        for is_causal in (False, True) if shape[0] > 1 else ():
            name = f"backward {text(shape)} {'causal' if is_causal else 'plain'}"
            goal = 0.9 if shape[-1] > 128 else 0.95
            yield Line(name, goal, partial(_backward, shape, is_causal=is_causal))


def _since_lines() -> Iterator[Line]:
    """Times of then are those of the scoreboard of the day when the goal was set."""
    then: Mapping[str, tuple[Any, float]] = {
        "mamba2_chunk_scan": (mamba2_chunk_scan, 0.6446),
        "gdn_fwd_h": (gdn_fwd_h, 0.3759),
        "ragged_attention": (jagged_hstu_attn_2, 0.6378),
    }
    for operator in (*recurrence.operators(), *jagged.operators()):
        if operator.name in then:
            kernel, ms = then[operator.name]
            name = f"since {operator.name} {operator.inputs[2].label}"
            yield Line(name, 1.5, partial(_since, operator, kernel, ms))


def _product_lines() -> Iterator[Line]:
    ours = [case for case in CASES if case.precision == "bf16"]
    for case in sorted(ours, key=lambda case: case.has_gelu):
        goal = 1.05 if case.has_gelu else 0.93
        yield Line(f"product {case.name}", goal, partial(_product, case))
    for case in HELD:
        if case.precision == "bf16" and not case.has_gelu:
            yield Line(f"held {case.name}", None, partial(_product, case))


def text(shape: tuple[int, ...]) -> str:
    """Sizes as tables have them."""
    return "x".join(map(str, shape))


def lines() -> tuple[Line, ...]:
    """All of them, those of the issue first."""
    fp8 = (Line(f"fp8 {text(shape)}", 1.4, partial(_narrow, shape)) for shape in forward.FP8_SHAPES)
    return (*_forward_lines(), *_backward_lines(), *fp8, *_since_lines(), *_product_lines())
