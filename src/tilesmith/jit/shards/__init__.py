"""Calls with tensors that are spread over several processes."""
