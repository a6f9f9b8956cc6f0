"""Configs for tensors that no descriptor is of."""
