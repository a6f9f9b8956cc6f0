"""Forms that no default takes yet, beside the defaults of today: times, and errors against fp64.

    python -m benchmarks.new_forms [--only int4] [--repeats 20] [--limit 90]

Each case has a process of its own, which ends at the limit: a kernel that hangs costs no other.
Cases are built side by side; a lock lets one after the other have the device. Times are of replayed
graphs with a cold L2 cache, all rows of a case in turns. A row has microseconds, the default's time
over it, the error relative to the norm of what is right, whether five calls gave the same bits, and
what was timed. Without a GPU all configs are only compiled for one.
"""

from __future__ import annotations

import argparse
import fcntl
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import tilesmith
from benchmarks.checking import describe
from benchmarks.gpu_defaults import time_all
from examples import blackwell_attention as flat
from examples import flex_attention as flex
from examples import int4_gemm as int4
from examples import nvfp4_gemm as nvfp4
from examples import squeeze_and_excitation_net as squeeze
from examples.attention import attention
from examples.ports import nf4_matmul as nf4
from tilesmith import Config

DEVICE = "cuda" if torch.cuda.is_available() else "meta"
ROLES, PAIRS, PAIR_PARTS = "warp_roles", "pair_products", "pair_parts"
REPEATED_CALLS = 5
WINDOW = 1024
"""Keys before itself that a query sees, besides causal ones."""
Call = Callable[[], Any]
Change = dict[str, Any]


@dataclass(frozen=True)
class FormCase:
    """One kernel with its arguments, the forms to try, and others that compute the same."""

    kernel: Any
    args: tuple[Any, ...]
    exact: Callable[[], torch.Tensor]
    forms: Mapping[str, Sequence[Change]]
    """By form: changes of its default config."""
    rivals: dict[str, Call]

    def configs(self) -> Iterator[tuple[str, Config]]:
        """All that is timed, the default first."""
        spec = self.bind(None).config_spec
        yield "default", spec.default_config()
        for form, changes in self.forms.items():
            if form not in spec.forms():
                print(f"    -       {form}: this kernel has no such form")
                continue
            first = spec.forms()[form].default_config().updated(structure=form)
            yield f"{form}, its default", first
            for change in changes:
                yield f"{form} {change}", first.updated(**change)

    def bind(self, config: Config | None) -> Any:
        """The kernel for these arguments, and a device of this kind."""
        made = tilesmith.kernel(self.kernel.fn, config=config, static_shapes=True)
        return made.bind(made.normalize_args(*self.args), target="cuda:90")


def _blocks(*tiles: tuple[list[int], int, int]) -> list[Change]:
    names = ("block_sizes", "num_warps", "num_stages")
    return [dict(zip(names, tile)) for tile in tiles]


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, device=DEVICE)


def _flat_case(batch: int, heads: int, length: int, width: int) -> FormCase:
    q, k, v = (random(batch, heads, length, width) for _ in range(3))

    def exact() -> torch.Tensor:
        """One head after the other: scores of all would not fit."""
        heads = zip(*(x.flatten(0, 1) for x in (q, k, v)))
        scale = 1 / math.sqrt(width)
        parts = [(a.double() @ b.double().T * scale).softmax(-1) @ c.double() for a, b, c in heads]
        return torch.stack(parts).view(q.shape)

    changes = _blocks(([128, 128], 8, 2), ([128, 64], 8, 3), ([192, 64], 12, 3), ([64, 128], 4, 2))
    walks = [{**change, "pid_type": "flat"} for change in changes[:2]]
    rivals = {
        "sdpa": lambda: functional.scaled_dot_product_attention(q, k, v),
        "our attention, heads apart": lambda: attention(q, k, v),
    }
    return FormCase(flat.blackwell_attention, (q, k, v), exact, {ROLES: [*changes, *walks]}, rivals)


def _flex_case(heads: int, kv_heads: int, length: int, width: int, mask: str) -> FormCase:
    """Four batches, blocks of 128 keys that a list names: causal ones, or a window of them."""
    batch, block = 4, 128
    q, k, v = (random(batch, count, length, width) for count in (heads, kv_heads, kv_heads))
    count = -(-length // block)
    last = torch.arange(count, dtype=torch.int32, device=DEVICE)
    reach = count if mask == "causal" else WINDOW // block
    first = (last - reach).clamp(min=0) if DEVICE != "meta" else last
    lists = (first[:, None] + last[None, :]).clamp(max=count - 1).to(torch.int32)
    counts = (last - first + 1).to(torch.int32).expand(batch * heads, count).contiguous()
    blocks = lists.expand(batch * heads, count, count).contiguous()
    mods = (flex.no_change, flex.causal if mask == "causal" else flex.sliding_window(WINDOW))
    args = (q, k, v, flex.BlockMask(counts, blocks, block, block), *mods)
    place = torch.arange(length, device=DEVICE)
    hidden = place[None, :] > place[:, None]
    if mask != "causal":
        hidden = hidden | (place[:, None] - place[None, :] > WINDOW)

    def exact() -> torch.Tensor:
        """One head after the other."""
        out, group = torch.empty_like(q, dtype=torch.double), heads // kv_heads
        for b, h in ((b, h) for b in range(batch) for h in range(heads)):
            scores = q[b, h].double() @ k[b, h // group].double().T / math.sqrt(width)
            out[b, h] = (
                scores.masked_fill_(hidden, -math.inf).softmax(-1) @ v[b, h // group].double()
            )
        return out

    changes = _blocks(([128], 8, 2), ([64], 8, 3))
    walks = [{**change, "pid_type": "flat"} for change in changes]
    sdpa = functional.scaled_dot_product_attention
    rivals = {"causal sdpa": lambda: sdpa(q, k, v, is_causal=True, enable_gqa=True)}
    forms = {ROLES: [changes[1], *walks]}
    return FormCase(flex.flex_attention, args, exact, forms, rivals if mask == "causal" else {})


def _int4_case(m: int, k: int, n: int) -> FormCase:
    x = random(m, k)
    packed = torch.empty(k // 2, n, dtype=torch.int8, device=DEVICE)
    if DEVICE != "meta":
        packed = int4.pack(torch.randint(-8, 8, [k, n], device=DEVICE))

    def exact() -> torch.Tensor:
        return int4.reference(x, packed)

    rows = max(16, min(64, m))
    alone = _blocks(([rows, 32, 128], 4, 3), ([rows, 32, 64], 4, 4), ([rows, 64, 64], 4, 3))
    if m >= 128:
        alone = _blocks(([128, 128, 64], 8, 3), ([128, 64, 64], 4, 3), ([64, 128, 64], 4, 4))
    shared = [
        {"block_sizes": [rows, columns, steps, part], "num_warps": 4, "num_stages": stages}
        for columns, steps, part, stages in (
            (32, 64, 512, 3), (32, 128, 512, 3), (64, 64, 512, 3), (32, 128, 1024, 3),
            (64, 128, 1024, 3), (64, 64, 256, 3), (64, 64, 1024, 3), (64, 64, 1024, 4),
        )
    ]  # fmt: skip
    rivals = {"bf16 weights": lambda: x @ int4.unpack(packed).to(x.dtype)}
    compiled = torch.compile(lambda: x @ int4.unpack(packed).to(x.dtype), dynamic=False)
    forms = {PAIRS: alone, PAIR_PARTS: shared}
    return FormCase(int4.int4_gemm, (x, packed), exact, forms, {**rivals, "compile": compiled})


def _nf4_case(m: int, k: int, n: int) -> FormCase:
    if DEVICE == "meta":
        packed = torch.empty(n, k // 2, dtype=torch.uint8, device=DEVICE)
        scales = random(n, k // 64, dtype=torch.float32)
    else:
        packed, scales = nf4.quantise(random(n, k))
    x, codes = random(m, k), torch.tensor(nf4.CODES, device=DEVICE)

    def exact() -> torch.Tensor:
        return nf4.reference(x, packed, scales, codes).double()

    changes = _blocks(([16, 16, 64], 4, 3), ([16, 16, 128], 4, 4), ([16, 32, 64], 4, 3))
    shared = _blocks(
        ([16, 16, 128, 512], 4, 3), ([16, 16, 128, 1024], 4, 3), ([16, 32, 64, 512], 4, 3),
        ([16, 64, 64, 512], 4, 3), ([16, 64, 64, 256], 4, 4),
    )  # fmt: skip
    forms = {PAIRS: changes, PAIR_PARTS: shared}
    return FormCase(nf4.nf4_matmul, (x, packed, scales, codes), exact, forms, {})


def _nvfp4_case(m: int, k: int, n: int) -> FormCase:
    def operand(rows: int) -> tuple[torch.Tensor, torch.Tensor, float]:
        if DEVICE != "meta":
            return nvfp4.quantise(random(rows, k))
        packed = torch.empty(rows, k // 2, dtype=torch.uint8, device=DEVICE)
        return packed, torch.empty(rows, k // 16, device=DEVICE).to(torch.float8_e4m3fn), 1.0

    (x, x_scales, x_scale), (w, w_scales, w_scale) = operand(m), operand(n)
    args = (x, w, x_scales, w_scales, x_scale, w_scale)
    changes = _blocks(([64, 64, 16], 4, 3), ([64, 32, 8], 4, 3), ([64, 32, 16], 4, 3))
    shared = _blocks(([64, 64, 8, 64], 4, 3), ([64, 64, 8, 128], 4, 3), ([64, 32, 16, 64], 4, 3),
                     ([64, 32, 8, 128], 4, 3), ([64, 64, 16, 64], 4, 3))  # fmt: skip

    def exact() -> torch.Tensor:
        return nvfp4.reference(*args).double()

    forms = {PAIRS: changes, PAIR_PARTS: shared}
    return FormCase(nvfp4.nvfp4_gemm, args, exact, forms, {})


def _gate_case(m: int, n: int, hidden: int) -> FormCase:
    """No new form: its default did not fit into shared memory before."""
    x, grad = random(m, n), random(m, n)
    a, b, h, gate = random(n, hidden), random(hidden, n), random(m, hidden), random(m, n).sigmoid()
    args = (grad, x, a, b, h, gate)

    def exact() -> torch.Tensor:
        return squeeze.reference_bwd_rows(*(value.double() for value in args))[0]

    return FormCase(squeeze.squeeze_excite_bwd_rows, args, exact, {}, {})


CASES: dict[str, Callable[[], FormCase]] = {
    "flat heads 4x32x1024x128": lambda: _flat_case(4, 32, 1024, 128),
    "flat heads 4x32x1000x128": lambda: _flat_case(4, 32, 1000, 128),
    "flat heads 4x32x2048x64": lambda: _flat_case(4, 32, 2048, 64),
    "flat heads 4x32x1000x64": lambda: _flat_case(4, 32, 1000, 64),
    "listed causal 4x32x8x2048x128": lambda: _flex_case(32, 8, 2048, 128, "causal"),
    "listed causal 4x32x8x8192x128": lambda: _flex_case(32, 8, 8192, 128, "causal"),
    "listed causal 4x32x8x2000x128": lambda: _flex_case(32, 8, 2000, 128, "causal"),
    "listed window 4x32x8x4096x64": lambda: _flex_case(32, 8, 4096, 64, "window"),
    "int4 1x8192x8192": lambda: _int4_case(1, 8192, 8192),
    "int4 16x8192x8192": lambda: _int4_case(16, 8192, 8192),
    "int4 16x4096x4096": lambda: _int4_case(16, 4096, 4096),
    "int4 64x8192x1280": lambda: _int4_case(64, 8192, 1280),
    "int4 1024x3584x8192": lambda: _int4_case(1024, 3584, 8192),
    "nf4 16x4096x4096": lambda: _nf4_case(16, 4096, 4096),
    "nvfp4 64x4096x4096": lambda: _nvfp4_case(64, 4096, 4096),
    "gradients of gates 8192x2048x64": lambda: _gate_case(8192, 2048, 64),
}


def _first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def error_of(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def compile_only(case: FormCase) -> None:
    """Every config for a GPU that is not here."""
    from tilesmith.backends.triton.build import compile_artifact  # noqa: PLC0415

    for label, config in case.configs():
        built = compile_artifact(case.bind(config).to_artifact(config))
        print(f"    {built.shared_bytes:7d} bytes  {label}", flush=True)


def measure(case: FormCase, repeats: int, lock: Path) -> None:
    """Build and judge all, then time it alone on the device."""
    exact = case.exact()
    works: dict[str, Call] = dict(case.rivals)
    errors = {label: error_of(_first(call()), exact) for label, call in works.items()}
    same = dict.fromkeys(works, True)

    def add(label: str, config: Config) -> None:
        kernel = tilesmith.kernel(case.kernel.fn, config=config, static_shapes=True)
        try:
            found = _first(kernel(*case.args)).clone()
        except Exception as error:
            print(f"    -       {label}: {describe(error)}", flush=True)
            return
        again = [_first(kernel(*case.args)) for _ in range(REPEATED_CALLS - 1)]
        works[label], errors[label] = partial(kernel, *case.args), error_of(found, exact)
        same[label] = all(torch.equal(found, other) for other in again)

    for label, config in case.configs():
        add(label, config)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        timings, _ = time_all(works, torch.device(DEVICE), repeats)
    default = timings["default"].median_ms if "default" in timings else math.nan
    for label, timing in sorted(timings.items(), key=lambda item: item[1].median_ms):
        bits = "same" if same[label] else "OTHER BITS"
        ratio = default / timing.median_ms
        print(
            f"    {timing.median_ms * 1e3:8.1f}  {ratio:5.2f}  {errors[label]:.1e}  {bits}  {label}"
        )


def measure_all(only: str, repeats: int, limit: float) -> None:
    """All cases, built side by side, none longer than the limit."""
    start = time.perf_counter()
    command = ["env", "TORCHINDUCTOR_COMPILE_THREADS=1", sys.executable, "-m"]
    with tempfile.NamedTemporaryFile() as lock:
        options = [f"--repeats={repeats}", f"--lock={lock.name}"]
        running = {
            name: subprocess.Popen(
                [*command, "benchmarks.new_forms", *options, f"--case={name}"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for name in CASES if only in name
        }  # fmt: skip
        for name, process in running.items():
            left = max(1.0, limit - (time.perf_counter() - start))
            try:
                text, _ = process.communicate(timeout=left)
            except subprocess.TimeoutExpired:
                process.kill()
                text = f"{process.communicate()[0]}    ended at the limit of {limit} s\n"
            print(f"{name}\n{text}", end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--limit", type=float, default=180.0)
    parser.add_argument("--case", default="", help="this one alone, in this process")
    parser.add_argument("--lock", default="")
    parsed = parser.parse_args()
    torch.manual_seed(0)
    if not parsed.case and DEVICE != "meta":
        measure_all(parsed.only, parsed.repeats, parsed.limit)
        return
    for name in [parsed.case] if parsed.case else [name for name in CASES if parsed.only in name]:
        case = CASES[name]()
        if DEVICE == "meta":
            print(name, flush=True)
            compile_only(case)
        else:
            measure(case, parsed.repeats, Path(parsed.lock))


if __name__ == "__main__":
    main()
