"""The parts of a plan as readable text."""
