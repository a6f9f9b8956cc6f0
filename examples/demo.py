"""Five kernels on whatever device there is, tuned: time against PyTorch, error against float64.

Run it with `make demo`. A GPU runs Triton code, a CPU native code; each kernel runs with its
default config and with what a search of `--budget` seconds finds. `--source matmul` prints what is
generated for that kernel. A kernel that fails becomes a row that says why, the exit status tells.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from tilesmith.jit.runners import choose_runner
from tilesmith.measure.timer import Timing, time_on_cpu, time_on_device
from tilesmith.numerics.compare import ErrorReport, measure_error
from tilesmith.numerics.inputs import random_tensor

Tensors = tuple[torch.Tensor, ...]
TUNING_S = 8.0
CPU_REPEATS = 9
DEVICE_REPEATS = 30
PLAIN_WIDTH = 150
SHOWN_ON_CPU = "softmax"
RUNNER_NAMES = {"cpu": "native code", "triton": "Triton"}
"""What is said of a backend that compiles."""


@dataclass(frozen=True)
class Demonstration:
    """One kernel of examples/, its inputs, and what to hold it against."""

    module: str
    kernel: str
    shapes: dict[str, tuple[tuple[int, ...], ...]]
    """Shapes of the tensor arguments by device type; the CPU's finish in seconds."""
    dtypes: dict[str, torch.dtype]
    eager: Callable[..., torch.Tensor]
    reduction_length: Callable[[torch.Size], int] = lambda shape: 1
    """Terms of the longest sum behind one output element, from the first argument's shape."""
    intermediate: bool = False
    """Whether an intermediate is rounded to the input type before a product."""

    def inputs(self, device: torch.device) -> Tensors:
        """Random tensors of the shapes for this kind of device."""
        dtype = self.dtypes[device.type]
        return tuple(
            random_tensor(shape, dtype, seed=seed, device=device)
            for seed, shape in enumerate(self.shapes[device.type])
        )


@dataclass(frozen=True)
class Outcome:
    """What one row shows; a failed row has ``problem`` and whatever was known before it."""

    name: str
    shape: str
    dtype: str
    runner: str = ""
    config: str = ""
    default: Timing | None = None
    """With the default config, where ``ours`` is with what a search found."""
    ours: Timing | None = None
    eager: Timing | None = None
    compiled: Timing | None = None
    error: ErrorReport | None = None
    source: str = ""
    problem: str = ""


def same_shapes(
    *, cpu: tuple[int, ...], cuda: tuple[int, ...], count: int
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Shapes of ``count`` equal arguments on either kind of device."""
    return {"cpu": (cpu,) * count, "cuda": (cuda,) * count}


F32_THEN_BF16 = {"cpu": torch.float32, "cuda": torch.bfloat16}
BF16 = {"cpu": torch.bfloat16, "cuda": torch.bfloat16}

DEMONSTRATIONS = (
    Demonstration(
        "geglu",
        "geglu",
        same_shapes(cpu=(2048, 2048), cuda=(8192, 8192), count=2),
        F32_THEN_BF16,
        lambda gate, up: torch.nn.functional.gelu(gate, approximate="tanh") * up,
        # Results vanish far below zero: there only their absolute error is small.
        lambda shape: 2,
    ),
    Demonstration(
        "softmax",
        "softmax",
        same_shapes(cpu=(2048, 2048), cuda=(8192, 8192), count=1),
        BF16,
        lambda x: torch.softmax(x, 1),
        lambda shape: shape[1],
    ),
    Demonstration(
        "layer_norm",
        "layer_norm_fwd",
        {
            "cpu": ((2048, 2048), (2048,), (2048,)),
            "cuda": ((8192, 8192), (8192,), (8192,)),
        },
        BF16,
        lambda x, weight, bias: torch.nn.functional.layer_norm(x, weight.shape, weight, bias),
        lambda shape: shape[1],
    ),
    Demonstration(
        "matmul",
        "matmul",
        same_shapes(cpu=(1024, 1024), cuda=(4096, 4096), count=2),
        F32_THEN_BF16,
        torch.mm,
        lambda shape: shape[1],
    ),
    Demonstration(
        "attention",
        "attention",
        same_shapes(cpu=(1, 8, 1024, 64), cuda=(4, 32, 2048, 128), count=3),
        F32_THEN_BF16,
        torch.nn.functional.scaled_dot_product_attention,
        # A score sums the head dimension, an output element the keys.
        lambda shape: shape[2] * shape[3],
        intermediate=True,
    ),
)


def load_example(name: str) -> Any:
    """The module of an example, from the file beside this one."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickling look modules up by name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def first_tensor(result: Any) -> torch.Tensor:
    """The result itself, or the first of several."""
    return result[0] if isinstance(result, tuple) else result


def run_poisoned(work: Callable[[], Any]) -> torch.Tensor:
    """Result of a second call, into memory filled with NaN after the first."""
    # Freed next, it is what the allocator hands out to the second call.
    first_tensor(work()).fill_(float("nan"))
    return first_tensor(work())


def judge(
    demonstration: Demonstration, actual: torch.Tensor, exact: torch.Tensor, inputs: Tensors
) -> ErrorReport:
    """Error against float64, with the budget of this kernel's sums and roundings."""
    return measure_error(
        actual,
        exact,
        reduction_length=demonstration.reduction_length(inputs[0].shape),
        dtype=inputs[0].dtype,
        intermediate=inputs[0].dtype if demonstration.intermediate else None,
    )


def runs(name: str, work: Callable[[], Any]) -> bool:
    """Whether a baseline runs here; if not, standard error says why."""
    try:
        work()
    except Exception as error:
        print(f"{name} PyTorch failed: {first_line(error)}", file=sys.stderr)
        return False
    return True


def time_all(works: dict[str, Callable[[], Any]], device: torch.device) -> dict[str, Timing]:
    """Interleaved times; a baseline is left out where this machine's PyTorch cannot run it."""
    works = {name: work for name, work in works.items() if name == "ours" or runs(name, work)}
    if device.type == "cuda":
        return time_on_device(works, device=device, repeats=DEVICE_REPEATS)
    return time_on_cpu(works, repeats=CPU_REPEATS, min_sample_ms=20)


def short_config(config: Mapping[str, object]) -> str:
    """What says most about a config: block sizes and, for a GPU, warps and stages."""
    blocks = str(config.get("block_sizes", [])).replace(" ", "")
    if "num_warps" not in config:
        return blocks
    return f"{blocks} w{config['num_warps']} s{config.get('num_stages', '?')}"


def write_source(name: str, text: str) -> str:
    """Keep generated code where a reader can open it; returns the path."""
    folder = Path(tempfile.gettempdir()) / "tilesmith-demo"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(text)
    return str(path)


def demonstrate(
    demonstration: Demonstration, device: torch.device, budget: float, *, use_compile: bool
) -> Outcome:
    """Run one kernel; whatever goes wrong is part of the outcome."""
    known: dict[str, Any] = {
        "name": demonstration.module,
        "shape": shape_text(demonstration.shapes[device.type]),
        "dtype": str(demonstration.dtypes[device.type]).removeprefix("torch."),
    }
    try:
        for fact in collect_facts(demonstration, device, budget, use_compile=use_compile):
            known |= fact
    except Exception as error:
        known["problem"] = f"{type(error).__name__}: {first_line(error)}"
    return Outcome(**known)


def tune(kernel: Any, arguments: tuple[Any, ...], budget: float) -> Any:
    """The config that a search of that many seconds finds; its log is left out here."""
    bound = kernel.bind(arguments)
    return bound.autotune(arguments, budget=budget, log_level=logging.WARNING)


def collect_facts(
    demonstration: Demonstration, device: torch.device, budget: float, *, use_compile: bool
) -> Iterator[dict[str, Any]]:
    """Fields of the outcome as they become known, the cheapest and least likely to fail first."""
    module = load_example(demonstration.module)
    kernel = getattr(module, demonstration.kernel)
    inputs = demonstration.inputs(device)
    arguments = kernel.normalize_args(*inputs)
    bound = kernel.bind(arguments)
    runner = choose_runner(bound.settings, bound.target, bound.definition.backends)
    yield {"runner": RUNNER_NAMES.get(runner.backend.name, "interpreter")}
    config = bound.config_spec.default_config()
    # The interpreter has no use for a config: it takes tiles as large as it can.
    ours = bound
    works: dict[str, Callable[[], Any]] = {}
    if runner.is_compiling:
        default = bound.compile_config(config)
        if budget:
            works["default"] = lambda: default(*arguments)
            config = tune(kernel, arguments, budget)
        yield {"config": short_config(config)}
        yield {"source": write_source(demonstration.module, bound.to_code(config))}
        ours = bound.compile_config(config)
    actual = run_poisoned(lambda: ours(*arguments))
    error = judge(demonstration, actual, first_tensor(module.reference(*inputs)), inputs)
    yield {"error": error}
    works["ours"] = lambda: ours(*arguments)
    works["eager"] = lambda: demonstration.eager(*inputs)
    if use_compile:
        compiled = torch.compile(demonstration.eager, dynamic=False)
        works["compiled"] = lambda: compiled(*inputs)
    yield time_all(works, device)
    if not error.is_within_budget:
        yield {"problem": f"beyond the error budget: {first_line(error)}"}


def shape_text(shapes: Sequence[tuple[int, ...]]) -> str:
    """Distinct shapes, e.g. ``256x512 512``."""
    return " ".join("x".join(map(str, shape)) for shape in dict.fromkeys(shapes))


def first_line(text: object) -> str:
    """The first line of an error or report."""
    return (str(text).strip().splitlines() or ["(no message)"])[0]


def time_text(timing: Timing | None) -> str:
    """Median, in the unit that reads best."""
    if timing is None:
        return "-"
    milliseconds = timing.median_ms
    return f"{milliseconds * 1e3:.1f} us" if milliseconds < 1 else f"{milliseconds:.2f} ms"


def ratio_text(outcome: Outcome) -> str:
    """How many times faster than the better of eager and torch.compile; below one is slower."""
    others = [other.median_ms for other in (outcome.eager, outcome.compiled) if other is not None]
    if outcome.ours is None or not others:
        return "-"
    return f"{min(others) / outcome.ours.median_ms:.3g}x"


def row_of(outcome: Outcome) -> list[str]:
    """The cells of one row."""
    error = outcome.error
    return [
        outcome.name,
        outcome.shape,
        outcome.dtype,
        outcome.runner or "-",
        outcome.config or "-",
        time_text(outcome.default),
        time_text(outcome.ours),
        time_text(outcome.eager),
        time_text(outcome.compiled),
        ratio_text(outcome),
        f"{error.relative_norm:.1e}" if error else "-",
        f"{error.max_ulp:.3g}" if error else "-",
        "[red]failed[/]" if outcome.problem else "[green]ok[/]",
    ]


def show(console: Console, outcomes: Sequence[Outcome], device: torch.device) -> None:
    """The table and where the generated code lies."""
    table = Table(title=f"Tilesmith on {device_name(device)}")
    right = {"default", "ours", "eager", "compile", "vs better", "rel. norm", "max ulp"}
    headers = ["kernel", "shape", "dtype", "run by", "config"]
    headers += ["default", "ours", "eager", "compile"]
    for header in [*headers, "vs better", "rel. norm", "max ulp", "result"]:
        table.add_column(header, justify="right" if header in right else "left", overflow="fold")
    for outcome in outcomes:
        table.add_row(*row_of(outcome))
    console.print(table)
    for outcome in outcomes:
        if outcome.problem:
            console.print(f"[red]{outcome.name} failed:[/] {escape(outcome.problem)}")
    explain(console, device)
    if any(outcome.source for outcome in outcomes):
        console.print("Generated code, the same you get from kernel.bind(args).to_code():")
    for outcome in outcomes:
        if outcome.source:
            console.print(f"  {outcome.name}: {outcome.source}", soft_wrap=True)


def explain(console: Console, device: torch.device) -> None:
    """What the columns mean."""
    if device.type == "cuda":
        console.print("config: block sizes, warps (w) and pipeline stages (s) that tuning chose.")
    else:
        console.print("config: block sizes that tuning chose.")
    console.print("default: our time with the config chosen without any search; ours: when tuned.")
    console.print("vs better: times faster than the better of eager PyTorch and torch.compile.")
    console.print("rel. norm, max ulp: error against a float64 reference on the same inputs.")
    console.print(
        "Error near zero after cancellation is many ulps of a tiny number: read the norm."
    )


def print_source(console: Console, outcomes: Sequence[Outcome], name: str) -> None:
    """The code generated for one kernel, if there is any."""
    for outcome in outcomes:
        if outcome.name == name and outcome.source:
            console.print(f"The code of {name}:")
            text = Path(outcome.source).read_text()
            console.print(Syntax(text, "python", background_color="default"))


def device_name(device: torch.device) -> str:
    """What the table's title calls the device."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} (torch {torch.__version__})"
    return f"the CPU (torch {torch.__version__})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all, print the table; the exit status is 1 if any kernel failed."""
    names = [item.module for item in DEMONSTRATIONS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", choices=names, help="also print the code of this kernel")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument(
        "--budget", type=float, default=TUNING_S, help="seconds to tune each kernel; 0: not at all"
    )
    options = parser.parse_args(arguments)
    # torch.compile has opinions about its own dependencies.
    warnings.simplefilter("ignore")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    outcomes: list[Outcome] = []
    for demonstration in DEMONSTRATIONS:
        with console.status(f"running {demonstration.module}"):
            outcome = demonstrate(
                demonstration, device, options.budget, use_compile=not options.no_compile
            )
            outcomes.append(outcome)
    show(console, outcomes, device)
    # A loop nest is short enough to show unasked.
    print_source(
        console, outcomes, options.source or (SHOWN_ON_CPU if device.type == "cpu" else "")
    )
    return int(any(outcome.problem for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
