"""What tuning leaves on disk: every measurement in a journal, winners by key."""
