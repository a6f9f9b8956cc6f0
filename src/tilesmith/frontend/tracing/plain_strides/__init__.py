"""Strides of tensors that host code makes."""
