"""Chooses Configs by measuring them: searches, isolated workers, journal, reports."""
