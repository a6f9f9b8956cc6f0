# type: ignore
"""Settings that exclude each other, and tunables that are declared wrong."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import Case, X
from tests.errors.definition_mistakes import copy
from tilesmith import exc
from tilesmith.autotuner import EnumFragment, FiniteSearch, PowerOfTwoFragment
from tilesmith.jit.typed import make_kernel as kernel_without_tuner


def run_with(**settings):
    kernel = helion.kernel(copy.fn, **settings)
    return kernel(torch.ones(8))


def tune_without_a_tuner():
    return kernel_without_tuner(copy.fn).autotune((torch.ones(8),))


def tune_where_it_is_forbidden():
    return helion.kernel(copy.fn, disallow_autotuning=True).autotune((torch.ones(8),))


def choose_from_one_config():
    args = (torch.ones(8),)
    bound = helion.kernel(copy.fn).bind(args)
    return FiniteSearch(bound, args, configs=[helion.Config(block_sizes=[8])]).autotune()


def bind_a_large_tensor(elements, shape, strides):
    memory = torch.empty(elements, dtype=torch.int8).as_strided(shape, strides)
    return helion.kernel(copy.fn, index_dtype=torch.int32).bind((memory,))


@helion.kernel
def tunable_without_a_fragment(x):
    turns = hl.register_tunable("turns", 4)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * turns
    return out


@helion.kernel
def tunable_without_a_name(x):
    turns = hl.register_tunable(4, PowerOfTwoFragment(1, 4))
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * turns
    return out


@helion.kernel
def tunable_named_like_a_config_key(x):
    turns = hl.register_tunable("num_warps", PowerOfTwoFragment(1, 4))
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * turns
    return out


@helion.kernel
def tunable_that_is_a_string(x):
    mode = hl.register_tunable("mode", EnumFragment(("fast", "slow")))
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * len(mode)
    return out


@helion.kernel(static_shapes=False)
def tunable_up_to_a_runtime_size(x):
    turns = hl.register_tunable("turns", PowerOfTwoFragment(1, x.size(0)))
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * turns
    return out


@helion.kernel
def specialize_a_float(x):
    factor = hl.specialize(0.5)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


CASES = [
    Case(run_with, exc.CuteBackendUnavailable, keywords={"backend": "cute"}, has_place=False),
    Case(run_with, exc.MissingEnableTile, keywords={"backend": "tileir"}, has_place=False),
    Case(run_with, exc.BackendUnsupported, keywords={"backend": "pallas"}, has_place=False),
    Case(
        run_with,
        exc.IncompatibleInterpretModes,
        keywords={"ref_mode": helion.RefMode.EAGER, "triton_interpret": True},
        has_place=False,
    ),
    Case(
        run_with,
        exc.RefEagerModeCodePrintError,
        keywords={"ref_mode": helion.RefMode.EAGER, "print_output_code": True},
        has_place=False,
    ),
    Case(run_with, exc.BackendUnsupported, keywords={"backend": "triton"}, has_place=False),
    Case(run_with, ValueError, keywords={"ignore_warnings": "WrongDevice"}, has_place=False),
    Case(run_with, ValueError, keywords={"ignore_warnings": ["WrongDevices"]}, has_place=False),
    Case(
        bind_a_large_tensor,
        exc.InputTensorNumelExceedsIndexType,
        (2**31, (2**31,), (1,)),
        has_place=False,
    ),
    Case(
        bind_a_large_tensor,
        exc.IndexOffsetOutOfRangeForInt32,
        (2**31 + 4, (2, 4), (2**31, 1)),
        has_place=False,
    ),
    Case(tune_without_a_tuner, exc.AutotuneError, has_place=False),
    Case(tune_where_it_is_forbidden, exc.AutotuningDisallowedInEnvironment, has_place=False),
    Case(choose_from_one_config, exc.NotEnoughConfigs, has_place=False),
    Case(tunable_without_a_fragment, exc.RegisterTunableArgTypes, X),
    Case(tunable_without_a_name, exc.RegisterTunableArgTypes, X),
    Case(tunable_named_like_a_config_key, exc.TunableNameConflict, X),
    Case(tunable_that_is_a_string, exc.TunableTypeNotSupported, X),
    Case(tunable_up_to_a_runtime_size, exc.ConfigSpecFragmentWithSymInt, X),
    Case(specialize_a_float, exc.SpecializeArgType, X),
]
