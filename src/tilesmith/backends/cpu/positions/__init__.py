"""Elements by their position: where an extreme lies, lanes that are neighbours, single elements."""
