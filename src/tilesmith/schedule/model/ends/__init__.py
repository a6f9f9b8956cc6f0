"""How long loops are whose bounds follow from the sizes of blocks."""
