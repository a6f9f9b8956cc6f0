"""The gradient of a kernel, as a kernel: its IR backwards, written in the language."""
