"""What every result of a kernel call should be, by the kernel's own IR in fp64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from tilesmith.analysis.effects import tensors_written
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.frontend.tracing.host_run import copy_tensors
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.executables import CapturedLaunch
from tilesmith.jit.kernel import Kernel
from tilesmith.numerics.doctor.findings import DiagnosedCall, DiagnoseOptions, OutputPlace
from tilesmith.numerics.doctor.host_run import HostRun, WideResults, launch_arguments, replace_data
from tilesmith.numerics.oracle import (
    NoReferenceError,
    OracleOptions,
    Reference,
    ReferenceTensor,
    work_out_reference,
)
from tilesmith.numerics.reference_setup import choose_num_programs, like_view, reference_sizes
from tilesmith.schedule.config import Config


class ReferenceFormError(ValueError):
    """The user's own reference does not give what the kernel gives."""


@dataclass(frozen=True)
class _Launch:
    """What was found at the launch point."""

    captured: CapturedLaunch
    tensors: Mapping[str, torch.Tensor]
    """Written ones by parameter, as host code goes on with them."""
    initial: Mapping[str, Any]
    """All arguments of the IR function, in their initial state."""
    sizes: Mapping[str, int]
    oracle: OracleOptions
    reference: Reference


def make_subject(
    kernel: Kernel, args: tuple[Any, ...], config: Config, options: DiagnoseOptions
) -> DiagnosedCall:
    """Interpret one call of a kernel; a reference without tensors says why there is none."""
    normal = kernel.normalize_args(*args)
    bound = kernel.bind(normal)
    launches: list[_Launch] = []
    run = HostRun(bound, normal, config, lambda x: launches.append(_launch(x, config, options)))
    launch = launches[0]
    places = tuple(_find_places(run, launch))
    known = dict(_known_outputs(places, run, launch))
    missing = [p for p in places if p.name not in known and p.result >= 0]
    if missing and launch.reference.is_complete and not launch.reference.reason:
        known |= _computed_by_host(missing, (bound, normal, config), run, launch)
    as_written = {name: tensor.native for name, tensor in known.items()}
    if options.reference is not None:
        known |= _by_function(options.reference, normal, places, run.results, known)
    return DiagnosedCall(
        bound.definition.name,
        bound,
        normal,
        launch.captured.variant.function,
        launch.initial,
        launch.sizes,
        launch.oracle,
        launch.reference,
        # What no program writes is known only where it is listed as known.
        replace(launch.reference, tensors=known, is_complete=False),
        options.reference is not None,
        places,
        as_written,
    )


def _launch(captured: CapturedLaunch, config: Config, options: DiagnoseOptions) -> _Launch:
    """Stands for the launch: works out the reference, and leaves what the kernel gives."""
    function = captured.variant.function
    blocks = config.get("block_sizes", [])
    sizes = reference_sizes(function, blocks, may_grow=not captured.depends_on_config)
    is_on_host = captured.device.type == "cpu"
    count = choose_num_programs(function, sizes, is_on_host=is_on_host)
    arguments = launch_arguments(captured)
    names = set(tensors_written(function))
    oracle = OracleOptions(
        options.max_programs or count,
        options.seed,
        options.time_limit_s,
        is_compensated=any(_is_wide(arguments[name]) for name in names),
    )
    storages = {_storage(arguments[name]) for name in names}
    tensors = {name: x for name, x in arguments.items() if isinstance(x, torch.Tensor)}
    changed = {name: x for name, x in tensors.items() if _storage(x) in storages}
    initial = {**arguments, **copy_tensors(changed)}
    try:
        reference = work_out_reference(function, arguments, sizes, oracle)
    except NoReferenceError as error:
        reference = Reference({}, is_complete=False, reason=str(error))
    for name, tensor in reference.tensors.items():
        arguments[name].copy_(tensor.native)
    written = {name: arguments[name] for name in sorted(names)}
    return _Launch(captured, written, initial, sizes, oracle, reference)


def _find_places(run: HostRun, launch: _Launch) -> Iterator[OutputPlace]:
    given = list(tensors_in(run.args))
    foreign = {_storage(x) for x in given}
    written = {_storage(x) for x in launch.tensors.values()}
    taken: set[str] = set()
    for position, result in enumerate(run.results):
        if _storage(result) in written or _storage(result) not in foreign:
            name = _unused(_name_of(result, launch, f"result {position}"), taken)
            yield OutputPlace(name, result=position)
    returned = {_storage(x) for x in run.results}
    for position, argument in enumerate(given):
        if _storage(argument) in written - returned:
            name = _unused(_name_of(argument, launch, f"argument {position}"), taken)
            yield OutputPlace(name, argument=position)


def _name_of(tensor: torch.Tensor, launch: _Launch, otherwise: str) -> str:
    def form(x: torch.Tensor) -> tuple[Any, ...]:
        return (_storage(x), x.dtype, x.shape, x.stride(), x.storage_offset())

    return next((n for n, x in launch.tensors.items() if form(x) == form(tensor)), otherwise)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def _known_outputs(
    places: tuple[OutputPlace, ...], run: HostRun, launch: _Launch
) -> Iterator[tuple[str, ReferenceTensor]]:
    """Outputs that are memory which the launch wrote."""
    given = list(tensors_in(run.args))
    foreign = {_storage(x) for x in given}
    for place in places:
        tensor = run.results[place.result] if place.result >= 0 else given[place.argument]
        form = (_storage(tensor), tensor.dtype)
        names = (n for n, x in launch.tensors.items() if (_storage(x), x.dtype) == form)
        found = next(names, "")
        if found not in launch.reference.tensors:
            continue
        whole = launch.reference.tensors[found]
        written = like_view(whole.written, tensor)
        # Memory of the caller that no program writes must stay as it was.
        if launch.reference.is_complete and _storage(tensor) in foreign:
            written = torch.ones_like(written)
        truth, native = like_view(whole.truth, tensor), like_view(whole.native, tensor)
        yield place.name, ReferenceTensor(truth, native, written, whole.is_accumulated)


def _computed_by_host(
    places: list[OutputPlace],
    call: tuple[BoundKernel, tuple[Any, ...], Config],
    run: HostRun,
    launch: _Launch,
) -> dict[str, ReferenceTensor]:
    """Outputs that host code computes after the launch: the same from what should be there."""
    truths = {name: tensor.truth for name, tensor in launch.reference.tensors.items()}
    with WideResults():
        wide = HostRun(*call, lambda captured: replace_data(captured, truths)).results
    found: dict[str, ReferenceTensor] = {}
    for place in places:
        native, truth = run.results[place.result], wide[place.result]
        if native.is_floating_point() and truth.dtype != torch.float64:
            continue
        found[place.name] = ReferenceTensor(
            truth, native, torch.ones_like(native, dtype=torch.bool)
        )
    return found


def _by_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    places: tuple[OutputPlace, ...],
    results: list[torch.Tensor],
    known: Mapping[str, ReferenceTensor],
) -> dict[str, ReferenceTensor]:
    """Outputs by the user's own function in fp64."""
    with torch.no_grad():
        truths = list(tensors_in(function(*map(widened, args))))
    found: dict[str, ReferenceTensor] = {}
    if len(truths) <= max((place.result for place in places), default=-1):
        raise ReferenceFormError(f"the reference returns {len(truths)} tensors, too few")
    for place in places:
        if place.result < 0:
            continue
        truth, like = truths[place.result], results[place.result]
        if truth.shape != like.shape or (truth.is_floating_point() and not _is_wide(truth)):
            expected = f"a float64 tensor of shape {list(like.shape)}"
            raise ReferenceFormError(
                f"the reference gives {truth.dtype} of shape {list(truth.shape)} for "
                f"{place.name}, expected {expected}"
            )
        own, native = known.get(place.name), truth
        if own is not None and truth.is_floating_point():
            # The error that the kernel's roundings make is what they justify. What it gives by
            # itself may be far from the truth: that is what the user wants to know.
            native = truth + torch.where(own.written, own.native.double() - own.truth, 0.0)
        everywhere = torch.ones_like(native, dtype=torch.bool)
        found[place.name] = ReferenceTensor(truth, native.to(like.dtype), everywhere)
    return found


def widened(value: Any) -> Any:
    """A nested value with copies of its tensors, floats in fp64."""

    def widen(tensor: torch.Tensor) -> torch.Tensor:
        dtype = torch.float64 if tensor.is_floating_point() else tensor.dtype
        return tensor.detach().to(dtype, copy=True)

    return map_tensors(value, widen)


def _is_wide(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.float64


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
