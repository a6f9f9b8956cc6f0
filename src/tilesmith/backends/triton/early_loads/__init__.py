"""Loads that are begun before what does not need them: more bytes are in flight."""
