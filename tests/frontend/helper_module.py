"""Helpers in a file of their own, called from device code."""

from __future__ import annotations

import torch


def inner(value):
    return torch.sin(value)


def outer(value):
    return inner(value)


def inner_with_mistake(value):
    return torch.linalg.inv(value)


def outer_with_mistake(value):
    return inner_with_mistake(value)
