"""All rows of a suite against the best of their rivals: measured in parts, shown on one page."""
