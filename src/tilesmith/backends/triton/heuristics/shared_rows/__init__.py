"""Rows that several programs share: where that can help, and how long their parts are."""
