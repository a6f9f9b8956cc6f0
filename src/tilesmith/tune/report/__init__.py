"""What a search tells people: log, progress bar, tables, pictures."""
