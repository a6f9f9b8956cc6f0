"""Measures workloads of the CPU benchmark in this process: names in, one JSON line out for each.

Started by benchmarks.cpu, which outlives it: a kernel that crashes ends this process only.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from benchmarks.checking import describe, results_of, run_poisoned
from benchmarks.cpu_row import SMALL_CALLS, Row, SmallCalls
from benchmarks.cpu_workloads import WORKLOADS, CpuWorkload, Tensors
from benchmarks.quiet_rounds import Rounds, run_rounds
from benchmarks.small_calls import measure_small_calls
from tilesmith.jit.runners import choose_runner
from tilesmith.measure.timer import Work, time_on_cpu
from tilesmith.numerics.compare import measure_error

OURS, COMPILED = "ours", "torch.compile"


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    threads: int
    rounds: int
    min_sample_ms: float
    use_compile: bool


@dataclass
class Contest:
    """The implementations of one workload that are right, and what is wrong with the others."""

    works: dict[str, Work] = field(default_factory=dict[str, Work])
    problems: dict[str, str] = field(default_factory=dict[str, str])
    num_bytes: int = 0


def is_native(kernel: Any, inputs: Tensors) -> bool:
    """Whether a kernel runs as machine code here."""
    bound = kernel.bind(inputs)
    return (
        choose_runner(bound.settings, bound.target, bound.definition.backends).backend.name == "cpu"
    )


def enter_contest(workload: CpuWorkload, inputs: Tensors, options: Options) -> Contest:
    """Build every implementation, check it against float64."""
    kernel = workload.load_kernel()
    works: dict[str, Work] = {OURS: lambda: kernel(*inputs)}
    for name, form in workload.eager.items():
        works[name] = lambda form=form: form(*inputs)
    if options.use_compile:
        compiled = torch.compile(next(iter(workload.eager.values())), dynamic=False)
        works[COMPILED] = lambda: compiled(*inputs)
    exact = workload.exact(*inputs)
    contest = Contest()
    for name, work in works.items():
        try:
            problem = find_problem(workload, run_poisoned(work)[0], exact)
        except Exception as error:
            problem = describe(error)
        if not problem:
            contest.works[name] = work
            continue
        contest.problems[name] = problem
        if name == OURS:
            # Without us there is no contest.
            return contest
    traffic = (*inputs, *results_of(contest.works[OURS]()))
    contest.num_bytes = sum(value.nbytes for value in traffic)
    return contest


def find_problem(workload: CpuWorkload, actual: torch.Tensor, exact: torch.Tensor) -> str:
    """What is wrong with a result, "" if nothing."""
    report = measure_error(
        actual,
        exact,
        reduction_length=workload.reduction_length,
        dtype=workload.dtype,
        intermediate=[workload.dtype] * workload.roundings,
    )
    return "" if report.is_within_budget else f"wrong: {str(report).splitlines()[0]}"


def keep_fastest_form(workload: CpuWorkload, contest: Contest) -> tuple[str, list[str]]:
    """Drop all eager forms but the fastest; its name, and a note on each of the others."""
    forms = {name: contest.works[name] for name in workload.eager if name in contest.works}
    if not forms:
        return "", []
    timings = time_on_cpu(forms, repeats=5, warmup=2)
    best = min(timings, key=lambda name: timings[name].median_ms)
    notes: list[str] = []
    for name in forms:
        if name != best:
            del contest.works[name]
            notes.append(f"{name} {timings[name].median_ms / timings[best].median_ms:.2g}x slower")
    if len(forms) > 1:
        notes.insert(0, f"eager is {best}")
    return best, notes


def measure(workload: CpuWorkload, options: Options) -> Row:
    """The row of one workload."""
    start = time.perf_counter()
    inputs = workload.inputs()
    contest = enter_contest(workload, inputs, options)
    known: dict[str, Any] = {"name": workload.name, "size": workload.size, "goal": workload.goal}
    notes = [f"{name}: {problem}" for name, problem in contest.problems.items() if name != OURS]
    if OURS not in contest.works:
        return Row(**known, problem=contest.problems[OURS], notes=notes)
    eager, more_notes = keep_fastest_form(workload, contest)
    notes += more_notes
    if not is_native(workload.load_kernel(), inputs):
        notes.append("interpreted")
    rounds = run_rounds(contest.works, rounds=options.rounds, min_sample_ms=options.min_sample_ms)
    return Row(
        **known,
        **times_of(rounds, eager),
        **rate_of(workload, contest.num_bytes, rounds.median_ms(OURS)),
        num_noisy=rounds.num_noisy,
        num_noisy_kept=rounds.num_noisy_kept,
        num_rounds=options.rounds,
        took_s=time.perf_counter() - start,
        notes=notes,
    )


def times_of(rounds: Rounds, eager: str) -> dict[str, Any]:
    """Times, and the ratio to the better of the baselines that ran."""
    baselines = [name for name in (eager, COMPILED) if name in rounds.samples_ms]
    times: dict[str, Any] = {"ours_ms": rounds.median_ms(OURS)}
    for name in baselines:
        times["eager_ms" if name == eager else "compile_ms"] = rounds.median_ms(name)
    if baselines:
        ratio = rounds.ratio(min(baselines, key=rounds.median_ms), OURS)
        times |= {"ratio": ratio.estimate, "ratio_low": ratio.low, "ratio_high": ratio.high}
    return times


def rate_of(workload: CpuWorkload, num_bytes: int, median_ms: float) -> dict[str, Any]:
    """GB/s, or GFLOP/s where arithmetic is the limit."""
    amount, unit = (workload.flops, "GFLOP/s") if workload.flops else (num_bytes, "GB/s")
    return {"rate": amount / median_ms / 1e6, "rate_unit": unit}


def run_job(name: str, options: Options) -> Row | SmallCalls:
    """One job by its name; whatever goes wrong is part of the answer."""
    workload = next((item for item in WORKLOADS if item.name == name), None)
    try:
        if workload is None:
            return measure_small_calls(options.rounds, use_compile=options.use_compile)
        return measure(workload, options)
    except Exception as error:
        if workload is None:
            return SmallCalls(problem=describe(error))
        return Row(name, workload.size, goal=workload.goal, problem=describe(error))


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help=f"workloads, or '{SMALL_CALLS}'")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--min-sample-ms", type=float, required=True)
    parser.add_argument("--no-compile", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the named workloads in turn."""
    parsed = parse_arguments(arguments)
    options = Options(parsed.threads, parsed.rounds, parsed.min_sample_ms, not parsed.no_compile)
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    for name in parsed.names:
        answer = run_job(name, options)
        print(json.dumps({"job": name, "answer": asdict(answer)}), flush=True)
        torch.compiler.reset()
        gc.collect()


if __name__ == "__main__":
    main()
