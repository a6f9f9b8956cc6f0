"""What is searched, in words."""

from __future__ import annotations

from math import prod

import torch

from examples.softmax import softmax
from tilesmith.store.lookup import describe_arguments
from tilesmith.tune.listener import space_size


def test_tensors_have_type_shape_and_odd_strides():
    x = torch.zeros(4, 8, dtype=torch.bfloat16)
    assert describe_arguments(("x", "y"), (x, x.T), with_values=True) == (
        "x: bfloat16[4, 8], y: bfloat16[8, 4] with strides [1, 8]"
    )


def test_other_arguments_are_shown_briefly():
    def epilogue(value):
        return value

    values = (epilogue, None, "text", list(range(9)), torch.float16)
    assert describe_arguments(("f", "n", "s", "l", "d"), values, with_values=True) == (
        "f: epilogue, n: None, s: 'text', l: [0, 1, 2, 3, 4, 5, …], d: torch.float16"
    )


def test_the_size_of_the_space_is_the_product_of_its_choices():
    spec = softmax.bind((torch.zeros(64, 128),)).config_spec
    choices = [dimension.fragment.cardinality for dimension in spec.dimensions()]
    assert space_size(spec) == prod(choices)
    assert space_size(spec) > 10
