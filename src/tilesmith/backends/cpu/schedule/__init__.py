"""CPU schedules: the keys of a Config, block sizes that suit the caches, predicted times."""
