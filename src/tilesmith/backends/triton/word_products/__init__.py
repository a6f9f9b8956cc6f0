"""Products of fp32: tiles for matrix units, and operands that have to be turned for them."""
