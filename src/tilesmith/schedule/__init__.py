"""How a function is run: Config, what a kernel accepts, and the Schedule that backends read."""
