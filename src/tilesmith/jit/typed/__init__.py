"""The decorators that make kernels, with the signature of what they decorate."""
