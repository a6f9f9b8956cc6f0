"""Derived backwards next to the hand-written ones of the gallery and to eager torch's.

``python -m benchmarks.gradients --device cuda`` prints milliseconds of the backward alone: on a GPU
of the device with a cold L2 cache, on a CPU of one thread. Errors are relative to fp64.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from examples import (
    attention,
    causal_attention,
    dot_compress,
    exp,
    geglu,
    grpo_loss,
    layer_norm,
    low_mem_dropout,
    matmul,
    rms_norm,
    rope,
    se_block,
    softmax,
    squeeze_and_excitation_net,
    swiglu,
)
from examples.linear import channel_decay, scalar_decay
from tilesmith.measure.timer import Conditions, Work, time_on_device

Call = Callable[..., Any]
Args = tuple[Any, ...]
MAIN = (
    "geglu", "swiglu", "softmax", "rms_norm", "layer_norm", "matmul", "attention", "attention_fwd",
)  # fmt: skip
ROUNDS = {"cpu": 15, "cuda": 30}


@dataclass(frozen=True)
class Case:
    """One backward in three forms; shapes for a GPU and for one thread of a CPU."""

    kernel: Call
    written: Call
    eager: Call | None
    shapes: Mapping[str, Sequence[tuple[int, ...]]]
    others: Args = ()
    num_results: int = 1
    """How many results have a cotangent."""

    def args(self, device: str, dtype: torch.dtype) -> Args:
        """Random tensors, then what is no tensor."""
        torch.manual_seed(0)
        made = tuple(
            torch.randn(shape, device=device, dtype=dtype).requires_grad_()
            for shape in self.shapes[device]
        )
        return (*made, *self.others)


def sizes(cuda: Sequence[tuple[int, ...]], cpu: Sequence[tuple[int, ...]]) -> Any:
    """By device."""
    return {"cuda": cuda, "cpu": cpu}


def matrices(cuda: tuple[int, ...], cpu: tuple[int, ...], count: int) -> Any:
    """The same shape several times."""
    return sizes([cuda] * count, [cpu] * count)


def norm_sizes(weights: int) -> Any:
    """A matrix and its weights."""
    return sizes([(8192, 8192), *[(8192,)] * weights], [(2048, 2048), *[(2048,)] * weights])


def eager_layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def eager_rms_norm(x: Any, weight: Any, eps: float) -> torch.Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight, eps)


def eager_squeeze(x: Any, a: Any, b: Any) -> torch.Tensor:
    return x * torch.sigmoid(torch.relu(x @ a) @ b)


def turned(q: Any, k: Any) -> Any:
    return rope.rope(q, k, *angles_of(q))


def turned_by_hand(q: Any, k: Any) -> Any:
    return rope.RoPE.apply(q, k, *angles_of(q))


def angles_of(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return rope.angles(q.size(2), q.size(3), str(q.device), q.dtype)


def dropout(x: Any, p: float, seed: int) -> torch.Tensor:
    return low_mem_dropout.low_mem_dropout(p, x, seed)


def compress(x: Any, y: Any, z: Any) -> Any:
    return dot_compress.dot_compress_fwd(x, y, z)


def decay(q: Any, k: Any, v: Any, g: Any) -> Any:
    return scalar_decay.scalar_decay(q, k, v, -g.abs(), scalar_decay.CHUNK)


def decay_by_hand(q: Any, k: Any, v: Any, g: Any) -> Any:
    return scalar_decay.ScalarDecay.apply(q, k, v, -g.abs())


def channels(q: Any, k: Any, v: Any, g: Any) -> Any:
    return channel_decay.channel_decay(q, k, v, -g.abs())


def channels_by_hand(q: Any, k: Any, v: Any, g: Any) -> Any:
    return channel_decay.ChannelDecay.apply(q, k, v, -g.abs())


def policy_args(logits: torch.Tensor) -> Args:
    """What the loss takes besides logits."""
    batch, positions, vocab = logits.shape
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(vocab, (batch, positions - 1), generator=generator).to(logits.device)
    line = torch.linspace(-1, 1, batch, device=logits.device)
    near = torch.full(ids.shape, -8.0, device=logits.device)
    return ids, line, near, near, torch.ones_like(ids)


def policy(logits: Any) -> Any:
    return grpo_loss.grpo_loss_fwd(logits, *policy_args(logits.detach()))


def policy_by_hand(logits: Any) -> Any:
    return grpo_loss.GRPOLoss.apply(logits, *policy_args(logits.detach()))


CASES: dict[str, Case] = {
    "exp": Case(exp.exp_fwd, exp.Exp.apply, torch.exp, matrices((8192, 8192), (2048, 2048), 1)),
    "geglu": Case(
        geglu.geglu,
        geglu.GeGLU.apply,
        lambda a, b: functional.gelu(a, approximate="tanh") * b,
        matrices((4, 4096, 11008), (512, 4096), 2),
    ),
    "swiglu": Case(
        swiglu.swiglu,
        swiglu.SwiGLU.apply,
        lambda a, b: functional.silu(a) * b,
        matrices((4, 4096, 11008), (512, 4096), 2),
    ),
    "softmax": Case(
        softmax.softmax,
        softmax.Softmax.apply,
        lambda x: torch.softmax(x, 1),
        matrices((8192, 8192), (2048, 2048), 1),
    ),
    "rms_norm": Case(
        rms_norm.rms_norm, rms_norm.RMSNorm.apply, eager_rms_norm, norm_sizes(1), (1e-5,)
    ),
    "layer_norm": Case(
        layer_norm.layer_norm_fwd,
        layer_norm.LayerNorm.apply,
        eager_layer_norm,
        norm_sizes(2),
        (1e-5,),
    ),
    "rope": Case(
        turned,
        turned_by_hand,
        None,
        sizes(
            [(4, 32, 4096, 128), (4, 8, 4096, 128)],
            [(2, 8, 512, 128), (2, 2, 512, 128)],
        ),
        num_results=2,
    ),
    "dropout": Case(
        dropout,
        low_mem_dropout.LowMemDropout.apply,
        lambda x, p, seed: functional.dropout(x, p),
        matrices((8192, 8192), (1024, 2048), 1),
        (0.25, 123),
    ),
    "matmul": Case(
        matmul.matmul, matmul.MatMul.apply, torch.matmul, matrices((4096, 4096), (768, 768), 2)
    ),
    "se_block": Case(
        se_block.se_block_fwd,
        se_block.SEBlock.apply,
        lambda x, w: 2 * x * torch.sigmoid(x @ w),
        sizes([(16384, 256), (256, 256)], [(2048, 256), (256, 256)]),
    ),
    "squeeze_excite": Case(
        squeeze_and_excitation_net.squeeze_excite_fwd,
        squeeze_and_excitation_net.SqueezeExcite.apply,
        eager_squeeze,
        sizes([(8192, 2048), (2048, 64), (64, 2048)], [(1024, 512), (512, 64), (64, 512)]),
    ),
    "dot_compress": Case(
        compress,
        dot_compress.DotCompress.apply,
        lambda x, y, z: x @ (x.transpose(1, 2) @ y),
        sizes([(256, 512, 128), (256, 512, 32)], [(16, 512, 128), (16, 512, 32)]),
        (None,),
    ),
    "attention": Case(
        attention.attention,
        attention.Attention.apply,
        functional.scaled_dot_product_attention,
        matrices((64, 2048, 64), (4, 512, 64), 3),
    ),
    "attention_fwd": Case(
        attention.attention_fwd,
        attention.Attention.apply,
        functional.scaled_dot_product_attention,
        matrices((64, 2048, 64), (4, 512, 64), 3),
    ),
    "causal_attention": Case(
        attention.causal_attention,
        causal_attention.CausalAttention.apply,
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        matrices((64, 2048, 64), (4, 512, 64), 3),
    ),
    "causal_fwd": Case(
        causal_attention.causal_fwd,
        causal_attention.CausalAttention.apply,
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        matrices((64, 2048, 64), (4, 512, 64), 3),
    ),
    "grpo_loss": Case(policy, policy_by_hand, None, matrices((4, 513, 32000), (2, 65, 8000), 1)),
    "scalar_decay": Case(
        decay,
        decay_by_hand,
        None,
        sizes(
            [*[(64, 2048, 64)] * 3, (64, 2048)],
            [*[(4, 512, 64)] * 3, (4, 512)],
        ),
    ),
    "channel_decay": Case(
        channels,
        channels_by_hand,
        None,
        sizes([(64, 1024, 64)] * 4, [(4, 128, 64)] * 4),
    ),
}


def backward_of(call: Call, args: Args, num_results: int) -> Work:
    """What goes back once through a call; its forward ran before."""
    found = call(*args)
    results = list(found)[:num_results] if isinstance(found, tuple) else [found]
    wanted = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.requires_grad]
    generator = torch.Generator().manual_seed(7)
    grads = [
        torch.randn(out.shape, generator=generator).to(out.device, out.dtype) for out in results
    ]

    def go_back() -> Any:
        return torch.autograd.grad(results, wanted, grads, retain_graph=True)

    return go_back


def works_of(case: Case, device: str, dtype: torch.dtype) -> dict[str, Work]:
    """The three backwards on the same arguments."""
    args = case.args(device, dtype)
    calls = {"derived": case.kernel, "by hand": case.written, "eager": case.eager}
    there = {name: call for name, call in calls.items() if call is not None}
    return {name: backward_of(call, args, case.num_results) for name, call in there.items()}


def keep_busy(device: str) -> Work:
    """Work of about a millisecond: the host is ahead of the device when the time begins."""
    wide = torch.empty(1 << 28, dtype=torch.int32, device=device)

    def clear() -> None:
        for _ in range(4):
            wide.zero_()

    return clear


def time_cpu(works: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """Milliseconds of CPU time of one thread, in turns; the least: others only add to it."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for number in range(rounds):
        names = list(works)
        for name in reversed(names) if number % 2 else names:
            start = time.thread_time()
            works[name]()
            taken[name].append((time.thread_time() - start) * 1e3)
    return {name: min(found) for name, found in taken.items()}


def time_all(works: Mapping[str, Work], device: str) -> dict[str, float]:
    if device == "cpu":
        return time_cpu(works, ROUNDS[device])
    prepare = dict.fromkeys(works, keep_busy(device))
    timings = time_on_device(
        works, repeats=ROUNDS[device], warmup=2, conditions=Conditions(prepare=prepare)
    )
    return {name: timing.median_ms for name, timing in timings.items()}


def apart(works: Mapping[str, Work]) -> float:
    """The largest relative distance of the derived gradients from those by hand."""
    pairs = zip(works["derived"](), works["by hand"]())
    found = [((a - b).float().norm() / b.float().norm()).item() for a, b in pairs]
    return max(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of cases; `all` for all")
    options = parser.parse_args()
    names = list(CASES) if options.names == ["all"] else options.names or list(MAIN)
    if options.device == "cpu":
        torch.set_num_threads(1)
    dtype = getattr(torch, options.dtype)
    print(f"{'':17}{'derived':>9}{'by hand':>9}{'eager':>9}{'ratio':>7}{'apart':>9}")
    for name in names:
        print(row(name, options.device, dtype), flush=True)


def row(name: str, device: str, dtype: torch.dtype) -> str:
    """One line of the table; one that fails does not end it."""
    try:
        return measured_row(name, device, dtype)
    except RuntimeError as error:
        return f"{name:17}{str(error).splitlines()[0][:80]}"


def measured_row(name: str, device: str, dtype: torch.dtype) -> str:
    """Times and their ratio."""
    works = works_of(CASES[name], device, dtype)
    distance = apart(works)
    times = time_all(works, device)
    columns = ("derived", "by hand", "eager")
    cells = [f"{times[key]:9.3f}" if key in times else f"{'-':>9}" for key in columns]
    ratio = times["derived"] / times["by hand"]
    return f"{name:17}{''.join(cells)}{ratio:7.2f}{distance:9.1e}"


if __name__ == "__main__":
    main()
