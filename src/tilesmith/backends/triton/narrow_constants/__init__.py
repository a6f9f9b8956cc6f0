"""Constants of floats of eight bits, which no conversion of a GPU may change."""
