"""Where the processes of a search run: on this machine, or wherever a place says."""
