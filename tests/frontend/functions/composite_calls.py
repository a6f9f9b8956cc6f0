"""Calls of torch functions that are composed of several scalar functions."""

from __future__ import annotations

import torch
from torch.nn import functional

from tests.frontend.functions.torch_calls import Call, all_of

COMPOSITE_UNARY = [
    *all_of("sgn frac positive signbit nan_to_num isposinf isneginf isreal deg2rad rad2deg"),
    *all_of("angle", 1),
    *all_of("erfinv digamma lgamma i0 logit", 4),
    Call("sinc", torch.sinc, 4, "small"),
    Call("special_i0e", torch.special.i0e, 4),
    Call("special_i1", torch.special.i1, 4),
    Call("special_i1e", torch.special.i1e, 4),
    Call("special_entr", torch.special.entr, 2),
    Call("special_ndtr", torch.special.ndtr, 4),
    Call("special_ndtri", torch.special.ndtri, 4),
    Call("logit", lambda x: torch.logit(x, eps=0.125), 4, variant="eps"),
    Call("mvlgamma", lambda x: torch.mvlgamma(x.abs() + 1.5, 3), 4, "small"),
    Call("frexp", lambda x: torch.frexp(x)[0], variant="mantissa"),
    Call("frexp", lambda x: torch.where(x.isfinite(), torch.frexp(x)[1], 0), variant="exponent"),
    Call("round", lambda x: torch.round(x, decimals=2), 1, "small", "decimals"),
    Call("nan_to_num", lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0), variant="values"),
    Call("hardsigmoid", functional.hardsigmoid, 1),
    Call("hardswish", functional.hardswish, 1),
    Call("celu", lambda x: functional.celu(x, 1.5), 2),
    Call("selu", functional.selu, 2),
    Call("softsign", functional.softsign, 1, "small"),
    Call("tanhshrink", functional.tanhshrink, 4),
    Call("softshrink", lambda x: functional.softshrink(x, 1.0), 1),
    Call("hardshrink", lambda x: functional.hardshrink(x, 0.25)),
    Call("rrelu", functional.rrelu, 1),
    Call("fill", lambda x: torch.fill(x, 2)),
    Call("real", lambda x: x.real),
    Call("zero", lambda x: torch.zero_(x.clone())),
    Call("copy", lambda x: torch.zeros_like(x).copy_(x)),
]
COMPOSITE_BINARY = [
    *all_of("fmax fmin heaviside isclose nextafter copysign"),
    *all_of("float_power", 1, "small"),
    *all_of("ldexp", 1, "small"),
    *all_of("xlogy logaddexp logaddexp2", 2),
    Call("special_xlog1py", torch.special.xlog1py, 2),
]
NOT_ELEMENTWISE = {"glu", "prelu"}
"""Rows whose operands have other shapes: torch's own samples try them (tools/op_table)."""
