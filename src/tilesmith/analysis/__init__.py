"""Read-only facts about a function; nothing here changes the IR."""
