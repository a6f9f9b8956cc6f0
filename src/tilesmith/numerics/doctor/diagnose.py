"""One call that answers which of several results is wrong, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.kernel import Kernel
from tilesmith.numerics.doctor.agreement import AgreementCount, BatchCheck, compare_repeats
from tilesmith.numerics.doctor.diagnosed_call import PlacedCall, make_subject, widened
from tilesmith.numerics.doctor.errors import Yardstick
from tilesmith.numerics.doctor.findings import (
    AS_WRITTEN,
    OURS,
    Agreement,
    CauseKind,
    DiagnoseOptions,
    Examination,
    Explanation,
    Implementation,
    Outputs,
    Scope,
    Verdict,
    choose_config,
)
from tilesmith.numerics.doctor.host_run import OutputReader, WrongFormError, without_defaults
from tilesmith.numerics.doctor.report import Diagnosis
from tilesmith.numerics.doctor.verdict import explain
from tilesmith.numerics.doctor.worst import with_inputs
from tilesmith.numerics.oracle import Reference
from tilesmith.schedule.config import Config


def diagnose(
    kernel: Kernel,
    args: Sequence[Any],
    against: Mapping[str, Callable[..., Any]] | None = None,
    options: DiagnoseOptions | None = None,
) -> Diagnosis:
    """Measure a kernel and other implementations against fp64, and say what differences mean.

    Args:
        kernel: the kernel.
        args: its arguments; they are not changed.
        against: other functions of the same arguments that return the same tensors, by name.
        options: how thorough to be.

    Example:
        ``print(diagnose(kernel, (x, y), {"eager": lambda x, y: x.T @ y}))``
    """
    chosen = options or DiagnoseOptions()
    with torch.no_grad():
        examination = _Doctor(kernel, tuple(args), against or {}, chosen).examine()
        explanation = Explanation(Verdict(CauseKind.UNKNOWN, "Nobody has asked for causes."))
        return Diagnosis(examination, explain(examination) if chosen.explain else explanation)


class _Doctor:
    """Measures all implementations of one call."""

    def __init__(
        self,
        kernel: Kernel,
        args: tuple[Any, ...],
        against: Mapping[str, Callable[..., Any]],
        options: DiagnoseOptions,
    ) -> None:
        for name in against:
            if name in (OURS, AS_WRITTEN):
                raise ValueError(f"{name!r} is taken: give the implementation another name")
        self._kernel = kernel
        self._options = options
        others = [
            Implementation(name, without_defaults(run, kernel.signature))
            for name, run in against.items()
        ]
        self._implementations = (Implementation(OURS, kernel), *others)
        self._placed = self._place(args)
        self._subject = self._placed.subject
        self._reader = OutputReader(self._placed.places)
        self._failures: dict[str, str] = {}

    def examine(self) -> Examination:
        """Run everything that was asked for."""
        reference = self._subject.reference
        yardstick = Yardstick(reference, self._options.num_worst)
        outputs: dict[str, Outputs] = {AS_WRITTEN: self._placed.as_written}
        agreements: list[Agreement] = []

        def reference_of(args: tuple[Any, ...]) -> Reference:
            return self._place(args).subject.reference

        batches = BatchCheck(self._subject.args, reference, self._reader, reference_of)
        for implementation in self._implementations:
            found = self._try(implementation, outputs.get(OURS, {}), batches)
            if found is not None:
                outputs[implementation.name] = found[0]
                agreements += found[1]
        # The kernel first, what it is meant to do last: as one reads.
        names = [*(i.name for i in self._implementations if i.name in outputs), AS_WRITTEN]
        statistics = [s for name in names for s in yardstick.measure(name, outputs[name])]
        wrong = dict.fromkeys(s.implementation for s in statistics if s.fault)
        return Examination(
            self._subject,
            self._implementations,
            outputs,
            tuple(with_inputs(statistics, self._subject, self._options.inputs_time_limit_s)),
            tuple(agreements),
            self._failures,
            {name: found for name in wrong if (found := self._wide_run(name)) is not None},
        )

    def _place(self, args: tuple[Any, ...]) -> PlacedCall:
        bound = self._kernel.bind(self._kernel.normalize_args(*args))
        return make_subject(self._kernel, args, choose_config(bound), self._options)

    def _try(
        self, implementation: Implementation, own: Outputs, batches: BatchCheck
    ) -> tuple[Outputs, list[Agreement]] | None:
        """Nobody's failure ends a diagnosis, except the kernel's own."""
        try:
            first = self._first_run(implementation, own)
            return first, list(self._agreements(implementation, first, batches))
        except Exception as error:
            if implementation.name == OURS:
                raise
            self._failures[implementation.name] = _in_one_line(error)
            return None

    def _first_run(self, implementation: Implementation, own: Outputs) -> Outputs:
        """What it gives, in the form of what the kernel itself gave."""
        outputs = self._reader.run(implementation.run, self._subject.args)
        self._check_shapes(outputs)
        for name, expected in own.items():
            found = (outputs[name].layout, outputs[name].device)
            if found != (expected.layout, expected.device):
                form = f"{expected.layout} on {expected.device}"
                raise WrongFormError(f"{name} is {found[0]} on {found[1]}, expected {form}")
        return outputs

    def _wide_run(self, name: str) -> Outputs | None:
        """The formula of another implementation, without its roundings if it has none of its own.

        Many accept no fp64, in many ways: then it is not known.
        """
        others = [i for i in self._implementations if i.name == name and name != OURS]
        try:
            args = tuple(map(widened, self._subject.args))
            return next((self._reader.run(i.run, args) for i in others), None)
        except Exception:
            return None

    def _check_shapes(self, outputs: Outputs) -> None:
        for name, known in self._subject.reference.tensors.items():
            if outputs[name].shape != known.native.shape:
                found, wanted = list(outputs[name].shape), list(known.native.shape)
                raise WrongFormError(f"{name} has shape {found}, expected {wanted}")

    def _agreements(
        self, implementation: Implementation, first: Outputs, batches: BatchCheck
    ) -> Iterator[Agreement]:
        repeats = range(self._options.repeats - 1)
        runs = (self._reader.run(implementation.run, self._subject.args) for _ in repeats)
        yield compare_repeats(implementation.name, first, runs, self._unwritten())
        if implementation.name == OURS:
            yield self._over_configs(self._subject.bound)
        if self._options.check_batches:
            yield batches.compare(implementation, first)

    def _unwritten(self) -> Outputs:
        """Elements that no program writes, where that is known."""
        is_known = self._subject.launch_reference.is_complete
        tensors = self._subject.reference.tensors if is_known else {}
        return {name: ~known.written for name, known in tensors.items()}

    def _over_configs(self, bound: BoundKernel) -> Agreement:
        """Configs that do not build or run are passed over: errors are not what is looked for."""
        count: AgreementCount | None = None
        labels: list[str] = []
        for config in self._configs(bound):
            try:
                outputs = self._reader.run(bound.compile_config(config), self._subject.args)
            except Exception as error:
                self._failures[str(config)] = _in_one_line(error)
                continue
            labels.append("x".join(map(str, config.get("block_sizes", []))) or "no tiles")
            if count is None:
                count = AgreementCount(outputs)
            else:
                count.add(outputs)
        if count is None or len(labels) < 2:
            why = "there are no two configs that run"
            return Agreement(OURS, Scope.CONFIGS, len(labels), skipped=why)
        return count.result(OURS, Scope.CONFIGS, labels)

    def _configs(self, bound: BoundKernel) -> list[Config]:
        if self._options.configs:
            return list(self._options.configs)
        ranked = bound.config_spec.ranked_configs(self._options.num_configs)
        found = [*bound.configs, *(item.config for item in ranked)]
        return list(dict.fromkeys(map(bound.config_spec.normalize, found)))


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
