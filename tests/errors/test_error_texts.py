"""One mistake per kernel: the class that is raised, and the whole text the user sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch

from tests.errors import kernels_with_mistakes as mistakes
from tilesmith import exc


class Case(NamedTuple):
    """A call and the class it must raise."""

    call: Callable[..., object]
    error: type[Exception]
    args: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = MappingProxyType({})

    @property
    def name(self) -> str:
        names = [self.call.__name__, *self.keywords]
        return "-".join(names)


def row() -> torch.Tensor:
    return torch.ones(8)


def matrix(columns: int = 8) -> torch.Tensor:
    return torch.ones(8, columns)


X = (row(),)
XX = (matrix(),)

CASES: dict[str, list[Case]] = {
    "definitions": [
        Case(mistakes.define_with_star_args, TypeError),
        Case(mistakes.define_with_keyword_only, TypeError),
        Case(mistakes.define_from_a_class, AssertionError),
        Case(mistakes.define_from_a_partial, AssertionError),
        Case(mistakes.define_with_a_closure, exc.ClosuresNotSupported),
        Case(mistakes.define_with_a_reserved_local, exc.NamingConflict),
        Case(mistakes.define_with_config_and_configs, AssertionError),
        Case(mistakes.define_with_an_unknown_setting, TypeError),
        Case(mistakes.run_source_from_exec, OSError),
        Case(mistakes.decorated_below, exc.DecoratorAfterHelionKernelDecorator, X),
    ],
    "arguments": [
        Case(mistakes.copy, TypeError, (row(), object())),
        Case(mistakes.copy, TypeError, (row(), 1, 2)),
        Case(mistakes.copy, TypeError),
        Case(mistakes.fill, exc.NoTensorArgs, (4, 1.0)),
        Case(mistakes.add, exc.TensorsOnDifferentDevices, (row(), torch.ones(8, device="meta"))),
    ],
    "loops": [
        Case(mistakes.without_a_device_loop, exc.NoDeviceLoopsInKernel, X),
        Case(mistakes.loop_inside_an_if, exc.NestedGridLoop, (row(), True)),
        Case(mistakes.statement_between_loops, exc.TopLevelStatementBetweenLoops, X),
        Case(mistakes.loops_without_a_barrier, exc.LoopDependencyError, X),
        Case(mistakes.loop_without_a_store, exc.EmptyDeviceLoopAfterDCE, X),
        Case(mistakes.loop_with_else, exc.DeviceLoopElseBlock, X),
        Case(mistakes.tile_outside_for, exc.LoopFunctionNotInFor, X),
        Case(mistakes.range_in_a_comprehension, exc.LoopFunctionNotInFor, X),
        Case(mistakes.loop_in_a_helper, exc.LoopFunctionNotInFor, XX),
        Case(mistakes.tile_of_a_tile, exc.TileOfTile, X),
        Case(mistakes.one_tile_for_two_names, exc.FailedToUnpackTile, XX),
        Case(mistakes.range_that_ends_before_it_begins, exc.InvalidTileRange, X),
        Case(mistakes.mixed_bounds, exc.IncorrectTileUsage, X),
        Case(mistakes.odd_block_size, exc.IncorrectTileUsage, X),
        Case(mistakes.runtime_static_range, exc.TypeInferenceError, (row(), 3)),
        Case(mistakes.loop_over_a_tensor, exc.InvalidDeviceForLoop, X),
    ],
    "statements": [
        Case(mistakes.return_in_a_loop, exc.NotAllowedOnDevice, X),
        Case(mistakes.with_in_a_loop, exc.NotAllowedOnDevice, X),
        Case(mistakes.try_in_a_loop, exc.NotAllowedOnDevice, X),
        Case(mistakes.break_in_a_loop, exc.UnsupportedPythonType, X),
        Case(mistakes.continue_in_a_loop, exc.UnsupportedPythonType, X),
        Case(mistakes.del_in_a_loop, exc.StatementNotSupported, X),
        Case(mistakes.raise_in_a_loop, exc.StatementNotSupported, X),
        Case(mistakes.assert_in_a_loop, exc.DataDependentCondition, X),
        Case(mistakes.import_in_a_loop, exc.StatementNotSupported, X),
        Case(mistakes.global_in_a_loop, exc.GlobalMutation, X),
        Case(mistakes.def_in_a_loop, exc.StatementNotSupported, X),
        Case(mistakes.walrus_in_a_loop, exc.StatementNotSupported, X),
        Case(mistakes.chained_assignment, exc.AssignmentMultipleTargets, X),
        Case(mistakes.nested_unpacking, exc.InvalidAssignment, X),
        Case(mistakes.starred_target, exc.StarredArgsNotSupportedOnDevice, X),
        Case(mistakes.item_in_a_loop, exc.NotAllowedOnDevice, (row(), torch.tensor(2.0))),
    ],
    "names": [
        Case(mistakes.undefined_name, exc.UndefinedVariable, X),
        Case(mistakes.device_variable_on_the_host, exc.CannotReadDeviceVariableOnHost, X),
        Case(mistakes.host_variable_rebound, exc.CannotModifyHostVariableOnDevice, X),
        Case(mistakes.bound_in_one_branch, exc.UnboundInBranch, (row(), 4)),
        Case(mistakes.bound_in_the_loop_only, exc.UnboundAfterLoop, X),
        Case(mistakes.accumulator_without_a_start, exc.UndefinedVariable, X),
        Case(mistakes.counter_without_a_start, exc.UndefinedVariable, (row(), 4)),
        Case(mistakes.helper_gets_an_unbound_name, exc.UnboundInBranch, (row(), 4)),
        Case(mistakes.captured_list_changed, exc.CapturedListMutation, (row(), [])),
        Case(mistakes.helper_writes_a_global, exc.GlobalMutation, X),
        Case(mistakes.apply_function, exc.ClosureMutation, (row(), mistakes.make_counter())),
        Case(mistakes.recursion, exc.RecursiveHelper, X),
        Case(mistakes.kernel_calls_a_kernel, exc.NestedKernelCallsNotSupported, X),
        Case(mistakes.hl_outside_a_kernel, exc.NotInsideKernel),
        Case(mistakes.device_function_on_the_host, exc.DeviceAPIOnHost, X),
        Case(mistakes.specialize_in_a_loop, exc.SpecializeOnDevice, X),
        Case(mistakes.register_in_a_loop, exc.RegisterOnDevice, X),
    ],
    "control_flow": [
        Case(mistakes.carried_value_changes_dtype, exc.ControlFlowTensorMismatch, X),
        Case(mistakes.carried_value_changes_shape, exc.ControlFlowTensorMismatch, X),
        Case(mistakes.branches_disagree, exc.ControlFlowTensorMismatch, (row(), 4)),
        Case(mistakes.number_changed_in_a_loop, exc.CantCombineTypesInControlFlow, X),
        Case(mistakes.tensor_condition, exc.MultiElementCondition, X),
        Case(mistakes.and_of_tensors, exc.TypeInferenceError, X),
        Case(mistakes.host_tensor_condition, exc.HostTensorDirectUsage, (row(), row())),
        Case(mistakes.condition_in_a_helper, exc.TorchOpTracingError, X),
    ],
    "operations": [
        Case(mistakes.host_tensor_as_a_value, exc.HostTensorDirectUsage, (row(), row())),
        Case(mistakes.host_tensor_in_a_torch_call, exc.HostTensorDirectUsage, (row(), row())),
        Case(mistakes.too_many_indices, exc.RankMismatch, X),
        Case(mistakes.stored_rank_too_high, exc.RankMismatch, XX),
        Case(mistakes.index_by_a_float, exc.InvalidIndexingType, X),
        Case(mistakes.index_out_of_range, exc.IndexOutOfRange, X),
        Case(mistakes.boolean_index, exc.DataDependentOutputShapeNotSupported, X),
        Case(mistakes.tuple_of_tiles_as_one_index, exc.OverpackedTile, XX),
        Case(mistakes.store_into_a_device_value, exc.DeviceTensorSubscriptAssignmentNotAllowed, X),
        Case(mistakes.store_of_a_string, exc.RequiresTensorInAssignment, X),
        Case(mistakes.atomic_on_a_device_value, exc.AtomicOnDeviceTensor, X),
        Case(mistakes.reduction_without_keepdim, exc.ShapeMismatch, XX),
        Case(mistakes.full_slices_of_unequal_size, exc.ShapeMismatch, (matrix(12), matrix(13))),
        Case(mistakes.dot_of_unequal_k, ValueError, (matrix(12), matrix(13))),
        Case(mistakes.reduction_of_a_missing_dim, exc.ReductionDimInvalidForShape, XX),
        Case(mistakes.unsupported_torch_function, exc.UnsupportedTorchFunction, X),
        Case(mistakes.missing_torch_operation, exc.InductorLoweringError, X),
        Case(mistakes.zeros_of_a_bare_tile, exc.InvalidAPIUsage, X),
        Case(mistakes.tile_arithmetic, exc.IncorrectTileUsage, X),
        Case(mistakes.tile_as_an_operand, exc.IncorrectTileUsage, X),
        Case(mistakes.string_as_an_operand, exc.TypeInferenceError, (row(), "sum")),
        Case(mistakes.exception_in_a_helper, exc.TorchOpTracingError, X),
    ],
    "configs": [
        Case(mistakes.run_copy, exc.InvalidConfig, keywords={"block_sizes": [16], "num_warp": 4}),
        Case(mistakes.run_copy, exc.InvalidConfig, keywords={"block_sizes": [24]}),
        Case(mistakes.run_copy, exc.InvalidConfig, keywords={"block_sizes": [16, 16]}),
        Case(mistakes.run_copy, exc.InvalidConfig, keywords={"num_warps": 4}),
        Case(mistakes.run_copy, exc.InvalidConfig, keywords={"block_sizes": [16], "num_warps": 3}),
        Case(
            mistakes.run_copy, exc.InvalidConfig, keywords={"block_sizes": [16], "pid_type": "flap"}
        ),
        Case(mistakes.run_copy, exc.InvalidConfig, keywords={"block_sizes": "16"}),
    ],
}

EVERY_CASE = [
    pytest.param(case, id=f"{topic}-{case.name}")
    for topic, cases in CASES.items()
    for case in cases
]


def raised_by(case: Case) -> Exception | None:
    try:
        case.call(*case.args, **case.keywords)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_mistake_raises_its_class(case):
    with pytest.raises(case.error):
        case.call(*case.args, **case.keywords)


@pytest.mark.parametrize("topic", CASES)
def test_texts(topic, golden):
    sections: list[str] = []
    for case in CASES[topic]:
        error = raised_by(case)
        sections.append(f"{case.name}\n{type(error).__name__}: {error}\n")
    golden("\n".join(sections))


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_mistake_is_reported_with_its_place(case):
    error = raised_by(case)
    if not isinstance(error, exc.BaseError) or case.call.__name__ in RAISED_WITHOUT_A_LINE:
        return
    assert error.loc is not None, str(error)
    assert error.loc.file.endswith("kernels_with_mistakes.py"), str(error)


RAISED_WITHOUT_A_LINE = {
    "add",
    "copy",
    "define_from_a_class",
    "define_from_a_partial",
    "define_with_config_and_configs",
    "fill",
    "hl_outside_a_kernel",
    "run_copy",
    "run_source_from_exec",
}
"""Mistakes in a call, not in a line of a kernel: the traceback shows the call."""


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_mistake_is_made_again_on_the_second_call(case):
    first, second = raised_by(case), raised_by(case)
    assert type(first) is type(second)
    assert str(first) == str(second)


def test_a_run_of_mistakes_leaves_kernels_working():
    for cases in CASES.values():
        for case in cases:
            raised_by(case)
    assert torch.equal(mistakes.copy(row()), row())
