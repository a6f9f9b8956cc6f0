"""References that lead nowhere."""
