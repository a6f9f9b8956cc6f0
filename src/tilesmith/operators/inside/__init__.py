"""Operators inside of graphs and of autograd's modes."""
