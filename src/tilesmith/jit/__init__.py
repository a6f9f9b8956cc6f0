"""The objects a user holds: the kernel decorator, specialization keys and bound kernels."""
