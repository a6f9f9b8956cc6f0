"""The child that launches unproven kernels: builds, checks and times candidates on its device."""
