"""Powers of e in two or three instructions, where nothing shows that the library has eight."""
