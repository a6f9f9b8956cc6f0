"""How many rounds of timing are enough."""
