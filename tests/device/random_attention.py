"""Random kernels like attention, with warp roles and random configs, each in a process of its own.

``python -m tests.device.random_attention --seconds 240 --workers 12`` on a Hopper GPU: so many
processes side by side, each with a time limit, so that a kernel that hangs is seen and costs no
more than that. Results are compared with fp64, and two calls with each other. At the end: counts,
and the time of all processes together. ``--device ptx`` needs no GPU: the PTX machine runs shorter
queries and keys, and looks for races.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from math import inf
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch

import tilesmith
import tilesmith.language as hl
from examples.attention import LOG2_E
from tests.fuzzing.simulated import running_ptx
from tilesmith import Config

FORM = "warp_roles"
MOST_SECONDS = {"cuda": 60.0, "ptx": 600.0}
"""For one process: compiling, running."""


class Sizes(NamedTuple):
    """Lengths of queries and of keys, and heads of keys."""

    queries: tuple[int, ...] = (64, 100, 128, 129, 191, 256, 333, 577, 1024)
    keys: tuple[int, ...] = (16, 65, 128, 250, 511, 1024)
    heads: tuple[int, ...] = (1, 2, 3)


SIZES = {"ptx": Sizes((64, 100, 129, 191), (16, 65, 128, 250), (1,))}
GRACE_SECONDS = 15.0
"""After the time, for what runs then. It is ended after that, and is neither right nor wrong."""
KINDS_OF_MASK = ("none", "causal", "window", "ahead")
LARGEST_ERRORS = (0.02, 0.05, 0.05)
"""Of a result's norm, by how often scores are rounded to 16 bits."""
LARGEST_FP8_ERROR = 0.08
MOST_SHOWN = 30
"""Texts of what went wrong; after that they are only counted."""
FP8 = torch.float8_e4m3fn


class Way(NamedTuple):
    """How a kernel of this kind is written."""

    mask: str
    window: int
    group: int
    """Queries' heads for each head of keys."""
    cap: float
    has_bias: bool
    has_slopes: bool
    roundings: int
    """Of scores to 16 bits: before they are scaled, and after that."""
    is_natural: bool
    """Whether powers are of e instead of 2."""
    is_fp8: bool


def scaled(scores: torch.Tensor, scale: float, narrow: torch.dtype, roundings: int) -> torch.Tensor:
    """Scores times a factor, each rounded or not."""
    if roundings:
        scores = scores.to(narrow)
    if roundings == 1:
        scores = scores.to(torch.float32)
    return (scores * scale).to(torch.float32)


@tilesmith.kernel(static_shapes=True)
def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor,
    slopes: torch.Tensor,
    way: hl.constexpr,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and the logarithm of each row's sum."""
    heads, m, d = q.size()
    n, head_dim = k.size(1), hl.specialize(d)
    out = torch.empty_like(q, dtype=torch.float32 if way.is_fp8 else q.dtype)
    narrow = torch.bfloat16 if way.is_fp8 else q.dtype
    logs = torch.empty([heads, m], dtype=torch.float32, device=q.device)
    unit = 1.0 if way.is_natural else LOG2_E
    scale = unit / head_dim**0.5
    for tile_b, tile_m in hl.tile([heads, m], block_size=[1, None]):
        head = tile_b.begin
        shared = head // way.group
        peak = hl.full([tile_m], -inf, dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_m, head_dim], dtype=torch.float32)
        queries = q[head, tile_m, :]
        begin = max(tile_m.begin - way.window, 0) if way.mask == "window" else 0
        end = tile_m.end if way.mask in ("causal", "window") else n
        for tile_n in hl.tile(begin, end):
            scores = hl.dot(queries, k[shared, tile_n, :].T)
            scores = scaled(scores, scale, narrow, way.roundings)
            if way.cap:
                scores = torch.tanh(scores * (1 / way.cap)) * way.cap
            if way.has_bias:
                scores = scores + bias[head, tile_m, tile_n].to(torch.float32) * unit
            behind = tile_m.index[:, None] - tile_n.index[None, :]
            if way.has_slopes:
                scores = scores - slopes[head] * torch.abs(behind).to(torch.float32)
            if way.mask in ("causal", "window"):
                scores = torch.where(behind >= 0, scores, -1.0e30)
            if way.mask == "window":
                scores = torch.where(behind < way.window, scores, -1.0e30)
            if way.mask == "ahead":
                # Not minus infinity: the first tiles of a row may be hidden as a whole.
                scores = torch.where(behind <= 3, scores, -1.0e30)
            new_peak = torch.maximum(peak, scores.amax(-1))
            power = torch.exp if way.is_natural else torch.exp2
            weights = power(scores - new_peak[:, None])
            shrink = power(peak - new_peak)
            total = total * shrink + weights.sum(-1)
            values = v[shared, tile_n, :]
            acc = hl.dot(weights.to(values.dtype), values, acc=acc * shrink[:, None])
            peak = new_peak
        out[head, tile_m, :] = (acc / total[:, None]).to(out.dtype)
        logs[head, tile_m] = peak / unit + torch.log(total)
    return out, logs


def exact(args: tuple[torch.Tensor, ...], way: Way) -> tuple[torch.Tensor, torch.Tensor]:
    """The same in fp64, all at once."""
    q, k, v, bias, slopes = (arg.double() for arg in args)
    unit = 1.0 if way.is_natural else LOG2_E
    k, v = (x.repeat_interleave(way.group, 0) for x in (k, v))
    scores = q @ k.mT / q.size(-1) ** 0.5
    if way.cap:
        scores = torch.tanh(scores * unit / way.cap) * way.cap / unit
    if way.has_bias:
        scores = scores + bias
    rows = torch.arange(q.size(1), device=q.device)[:, None]
    behind = rows - torch.arange(k.size(1), device=q.device)[None, :]
    if way.has_slopes:
        scores = scores - slopes[:, None, None] * behind.abs() / unit
    hidden = torch.zeros_like(behind, dtype=torch.bool)
    if way.mask in ("causal", "window"):
        hidden |= behind < 0
    if way.mask == "window":
        hidden |= behind >= way.window
    if way.mask == "ahead":
        hidden |= behind > 3
    scores = scores.masked_fill(hidden, -inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


@dataclass(frozen=True)
class Draw:
    """A kernel, its arguments' sizes and its config, all from one seed."""

    seed: int

    def way(self, random: Random) -> Way:
        return Way(
            mask=random.choice(KINDS_OF_MASK),
            window=random.choice((64, 128, 256)),
            group=random.choice((1, 1, 2, 4)),
            cap=random.choice((0.0, 0.0, 0.0, 20.0)),
            has_bias=random.random() < 0.25,
            has_slopes=random.random() < 0.25,
            roundings=random.choice((0, 0, 0, 1, 2)),
            is_natural=random.random() < 0.3,
            is_fp8=random.random() < 0.15,
        )

    def args(self, random: Random, way: Way, device: str) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(self.seed)
        dtype = random.choice((torch.bfloat16, torch.bfloat16, torch.float16))
        dtype = FP8 if way.is_fp8 else dtype
        sizes, device = SIZES.get(device, Sizes()), "cuda" if device == "cuda" else "cpu"
        heads, d = way.group * random.choice(sizes.heads), random.choice((16, 32, 64, 128, 256))
        m = random.choice(sizes.queries)
        # Copied tiles of 8 bits are whole.
        m = -(-m // 64) * 64 if way.is_fp8 else m
        # Lines of the mask end with the queries, and rows with no key at all have no result.
        n = m if way.mask != "none" or way.is_fp8 else random.choice((*sizes.keys, m))
        shapes = ((heads, m, d), (heads // way.group, n, d), (heads // way.group, n, d))
        q, k, v = (torch.randn(shape, device=device).to(dtype) for shape in shapes)
        if way.is_fp8:  # along the sum
            v = v.view(torch.uint8).mT.contiguous().mT.view(FP8)
        bias = torch.randn(heads, m, n, device=device).to(torch.bfloat16 if way.is_fp8 else dtype)
        return q, k, v, bias, torch.rand(heads, device=device) / 8

    def run(self, device: str = "cuda") -> str:
        """Run twice and compare; what was run. Raises where a result is wrong."""
        random = Random(self.seed)
        way = self.way(random)
        args = self.args(random, way, device)
        bound = attend.bind((*args, way), target=None if device == "cuda" else "cuda:90")
        spec = bound.config_spec.forms().get(FORM)
        if spec is None:
            return f"refused {way}"
        config = spec.random_config(random) if self.seed % 4 else spec.default_config()
        config = config.updated(structure=FORM)
        if device == "cpu":
            return f"{config} {bound.to_triton_code(config, target='cuda:90').count('gl.')}"
        with nullcontext() if device == "cuda" else running_ptx():
            self.check(bound, config, args, way)
        return f"{config} {way}"

    def check(self, bound: Any, config: Config, args: tuple[torch.Tensor, ...], way: Way) -> None:
        run = bound.compile_config(config)
        first, again = run(*args, way), run(*args, way)
        assert all(map(torch.equal, first, again)), f"{config} {way}: calls differ"
        for found, wanted in zip(first, exact(args, way)):
            error = float((found.double() - wanted).norm() / wanted.norm())
            largest = LARGEST_FP8_ERROR if way.is_fp8 else LARGEST_ERRORS[way.roundings]
            assert error < largest, f"{config} {way}: error {error:.1e}"


def report(line: str) -> None:
    """Show a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run_logged(seed: int, log: Path, device: str) -> None:
    """Run one seed in this process, which says everything to a file."""
    with log.open("w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    report(Draw(seed).run(device))


@dataclass
class Tally:
    """How many kernels were run, and what became of them."""

    done: int = 0
    refused: int = 0
    wrong: int = 0
    unfinished: int = 0
    busy: float = 0.0
    """Seconds of all processes together."""

    def count(self, seed: int, text: str, *, is_late: bool, is_wrong: bool) -> None:
        self.done += 1
        self.refused += text.startswith("refused")
        if is_late or is_wrong:
            self.wrong += 1
        if (is_late or is_wrong) and self.wrong <= MOST_SHOWN:
            report(f"seed {seed}: {'hangs' if is_late else text.strip()[-300:]}")

    def line(self) -> str:
        return (
            f"{self.done} kernels, {self.refused} refused, {self.wrong} wrong, "
            f"{self.unfinished} ended with the time; {self.busy:.0f} s of processes"
        )


def run_side_by_side(seconds: float, workers: int, first: int, folder: Path, device: str) -> int:
    """Start a process for each seed until the time is over; how many went wrong.

    Processes are copies of this one, which has all imported and never touches the device.
    """
    begin, seed, tally = time.monotonic(), first, Tally()
    running: dict[Any, tuple[int, float]] = {}
    while running or time.monotonic() - begin < seconds:
        while len(running) < workers and time.monotonic() - begin < seconds:
            log = folder / str(seed)
            started = get_context("fork").Process(target=run_logged, args=(seed, log, device))
            started.start()
            running[started] = seed, time.monotonic()
            seed += 1
        is_over = time.monotonic() - begin > seconds + GRACE_SECONDS
        for process, (number, since) in list(running.items()):
            is_alive, age = process.is_alive(), time.monotonic() - since
            is_late = is_alive and age > MOST_SECONDS[device]
            if is_alive and not is_late and not is_over:
                continue
            process.kill()
            process.join()
            del running[process]
            tally.busy += age
            if is_alive and not is_late:
                tally.unfinished += 1
                continue
            log = folder / str(number)
            text = log.read_text() if log.exists() else ""
            tally.count(number, text, is_late=is_late, is_wrong=bool(process.exitcode))
        time.sleep(0.02)
    report(f"{tally.line()}, {time.monotonic() - begin:.0f} s")
    report(f"the next seed is {seed}")
    return tally.wrong


def main() -> None:
    """Run one seed, or many processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", type=int, help="run the kernel of this seed here")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--device", default="cuda", help="or cpu: only make the code; or ptx")
    given = parser.parse_args()
    if given.one is not None:
        report(Draw(given.one).run(given.device))
    else:
        with tempfile.TemporaryDirectory() as folder:
            parts = (given.seconds, given.workers, given.first, Path(folder), given.device)
            wrong = run_side_by_side(*parts)
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
