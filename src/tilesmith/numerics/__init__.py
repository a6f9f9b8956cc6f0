"""Accuracy judged against float64: ulps, derived error budgets, comparison and test inputs."""
