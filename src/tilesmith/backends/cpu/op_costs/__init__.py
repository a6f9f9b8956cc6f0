"""How long ops take on a CPU."""
