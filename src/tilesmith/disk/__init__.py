"""Files on the disk: written whole, run only if they are ours, kept few."""
