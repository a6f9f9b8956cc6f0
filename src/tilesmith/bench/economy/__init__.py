"""What keeps a scoreboard of the CPU short: which rivals count there, what inputs share."""
