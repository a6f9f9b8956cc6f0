"""A transformer trained with kernels of the gallery, beside the same one in eager torch.

``python -m examples.models.transformer --device cuda --steps 200`` trains it from the same
parameters on the same tokens in eager mode, compiled, and compiled into CUDA graphs, each with
functions of torch and with our kernels; and once in fp64, which tells how far the others are from
what is exact. It prints one table.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from examples.models.operators import EAGER, KERNELS, Operators
from examples.rope import angles

WARM_STEPS, TIMED_STEPS = 5, 5
"""Steps that are not timed, and how many are timed together."""
PLAIN = "{}"
MODES = {
    PLAIN: None,
    "torch.compile({})": "default",
    "torch.compile({}), CUDA graphs": "reduce-overhead",
}
"""Ways to run a model, and the mode of ``torch.compile``."""


@dataclass(frozen=True)
class Shape:
    """How large a model is, and what it is given in a step."""

    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int
    batch: int
    length: int

    @property
    def tokens(self) -> int:
        """In one step."""
        return self.batch * self.length


SMALL = Shape(layers=2, width=64, heads=4, inner=128, vocabulary=256, batch=4, length=32)
LARGE = Shape(12, width=768, heads=12, inner=2048, vocabulary=32768, batch=8, length=1024)


class Block(nn.Module):
    """Attention and a gated unit, each on normalised rows and added to them."""

    def __init__(self, shape: Shape, operators: Operators, generator: torch.Generator) -> None:
        super().__init__()
        self.shape, self.operators = shape, operators
        width, inner = shape.width, shape.inner
        depth = math.sqrt(2 * shape.layers)

        def weight(rows: int, columns: int, shrink: float = 1.0) -> nn.Parameter:
            values = torch.randn(rows, columns, generator=generator)
            return nn.Parameter(values * (0.02 / shrink))

        self.first_norm, self.second_norm = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.qkv, self.out = weight(width, 3 * width), weight(width, width, depth)
        self.gate, self.up = weight(width, inner), weight(width, inner)
        self.down = weight(inner, width, depth)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rows ``[tokens, width]`` of the next layer."""
        operators, kind = self.operators, x.dtype
        rows = operators.norm(x, self.first_norm.to(kind))
        shape = self.shape
        qkv = operators.product(rows, self.qkv.to(kind))
        heads = qkv.view(shape.batch, shape.length, 3, shape.heads, -1)
        found = operators.attend(heads, cos, sin).reshape(x.shape)
        x = x + operators.product(found, self.out.to(kind))
        rows = operators.norm(x, self.second_norm.to(kind))
        gate = operators.product(rows, self.gate.to(kind))
        up = operators.product(rows, self.up.to(kind))
        return x + operators.product(operators.gate(gate, up), self.down.to(kind))


class Transformer(nn.Module):
    """Predicts the next token; ``kind`` is the type of activations, parameters have at least 32."""

    def __init__(self, shape: Shape, operators: Operators, kind: torch.dtype) -> None:
        super().__init__()
        self.shape, self.operators, self.kind = shape, operators, kind
        generator = torch.Generator().manual_seed(0)
        table = torch.randn(shape.vocabulary, shape.width, generator=generator)
        head = torch.randn(shape.width, shape.vocabulary, generator=generator)
        self.table, self.head = nn.Parameter(table * 0.02), nn.Parameter(head * 0.02)
        self.norm = nn.Parameter(torch.ones(shape.width))
        blocks = (Block(shape, operators, generator) for _ in range(shape.layers))
        self.blocks = nn.ModuleList(blocks)
        wide = torch.promote_types(kind, torch.float32)
        cos, sin = angles(shape.length, shape.width // shape.heads, "cpu", wide)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.to(wide)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss of ``[batch, length + 1]`` tokens."""
        given, wanted = tokens[:, :-1].reshape(-1), tokens[:, 1:].reshape(-1)
        x = self.operators.embed(given, self.table).to(self.kind)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.find_loss(x, wanted)

    def find_loss(self, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """The loss of the last layer's rows."""
        rows = self.operators.norm(x, self.norm.to(self.kind))
        logits = self.operators.product(rows, self.head.to(self.kind))
        return self.operators.loss(logits, wanted)

    def compile_parts(self, mode: str) -> None:
        """Compile blocks and head; equal blocks share what is compiled."""
        for block in self.blocks:
            block.compile(fullgraph=True, mode=mode)
        self.find_loss = torch.compile(self.find_loss, fullgraph=True, mode=mode)


def tokens_of_steps(shape: Shape, steps: int, device: str) -> Iterator[torch.Tensor]:
    """Sequences of a made-up language: each token is followed by one of four, some often."""
    generator = torch.Generator().manual_seed(1)
    # Products of random numbers are small more often: frequent tokens and rare ones.
    rare = torch.rand(shape.vocabulary, 4, 3, generator=generator).prod(-1)
    followers = (rare * shape.vocabulary).long()
    for _ in range(steps):
        sequence = [torch.randint(shape.vocabulary, (shape.batch,), generator=generator)]
        choices = torch.randint(4, (shape.length, shape.batch), generator=generator)
        for choice in choices:
            sequence.append(followers[sequence[-1], choice])
        yield torch.stack(sequence, 1).to(device)


@dataclass(frozen=True)
class Training:
    """What a training gave."""

    losses: torch.Tensor
    """One for each step, in fp64 on the CPU."""
    milliseconds: float
    """Of a step: the median, after the first ones."""


def train(model: Transformer, batches: Sequence[torch.Tensor]) -> Training:
    """Take one step of AdamW for each batch."""
    optimizer = model.operators.optimizer(model.parameters(), model.kind, [model.table])
    losses: list[torch.Tensor] = []
    times: list[float] = []
    start = time.perf_counter()
    for step, tokens in enumerate(batches, 1):
        torch.compiler.cudagraph_mark_step_begin()  # what the last step left may be overwritten
        loss = model(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().clone())
        if step >= WARM_STEPS and (step - WARM_STEPS) % TIMED_STEPS == 0:
            if tokens.is_cuda:
                torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / TIMED_STEPS * 1e3)
            start = time.perf_counter()
    found = statistics.median(times[1:]) if times[1:] else math.nan
    return Training(torch.stack(losses).double().cpu(), found)


def train_anew(
    shape: Shape,
    operators: Operators,
    kind: torch.dtype,
    batches: Sequence[torch.Tensor],
    *,
    mode: str | None = None,
) -> Training:
    """Train a model from the first parameters; ``mode`` is ``torch.compile``'s, None for eager."""
    model = Transformer(shape, operators, kind).to(batches[0].device)
    if mode is not None:
        torch.compiler.reset()
        model.compile_parts(mode)
    return train(model, batches)


def show(trainings: dict[str, Training], exact: torch.Tensor) -> Iterator[str]:
    """The lines of a table."""
    eager = trainings["eager"].losses
    steps = len(eager)
    shown = sorted({0, steps // 4, steps // 2, steps - 1})
    titles = " | ".join(f"loss {step + 1}" for step in shown)
    yield f"| | {titles} | most from fp64 | most from eager | ms/step |"
    yield "|---" * (len(shown) + 4) + "|"
    for name, training in trainings.items():
        losses = " | ".join(f"{training.losses[step]:.4f}" for step in shown)
        far = (training.losses[: len(exact)] - exact).abs().max()
        apart = (training.losses - eager).abs().max()
        yield f"| {name} | {losses} | {far:.1e} | {apart:.1e} | {training.milliseconds:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--exact-steps", type=int, default=None, help="of the fp64 run")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    options = parser.parse_args()
    is_large = options.device != "cpu"
    shape, kind = (LARGE, torch.bfloat16) if is_large else (SMALL, torch.float32)
    batches = list(tokens_of_steps(shape, options.steps, options.device))
    device = torch.cuda.get_device_name() if is_large else "CPU"
    print(f"{shape} on {device}, {kind}, torch {torch.__version__}", flush=True)
    trainings: dict[str, Training] = {}
    modes = [title for title in MODES if title == PLAIN or not options.no_compile]
    for name, operators in (("eager", EAGER), ("ours", KERNELS)):
        for form in modes if is_large else modes[:2]:
            start = time.perf_counter()
            title = form.format(name)
            trainings[title] = train_anew(shape, operators, kind, batches, mode=MODES[form])
            print(f"{title}: {time.perf_counter() - start:.1f} s in all", flush=True)
    exact_steps = options.exact_steps or (20 if is_large else options.steps)
    exact = train_anew(shape, EAGER, torch.float64, batches[:exact_steps]).losses
    print(f"fp64: {exact_steps} steps, loss {exact[0]:.6f} to {exact[-1]:.6f}")
    print("\n".join(show(trainings, exact)))


if __name__ == "__main__":
    main()
