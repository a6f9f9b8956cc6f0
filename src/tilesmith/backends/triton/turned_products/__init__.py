"""Products that read operands from registers: turned for it, and waited for."""
