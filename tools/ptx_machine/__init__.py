"""Runs PTX, the code that Triton makes for NVIDIA GPUs, on a machine without a GPU.

What comes in is the text of one kernel and tensors in the host's memory; what goes out is what a
GPU would write to them. All threads of many programs go through each instruction at once, as lanes
of NumPy arrays. Waiting, copies and memory of a program follow the PTX manual, not a chip.
"""
