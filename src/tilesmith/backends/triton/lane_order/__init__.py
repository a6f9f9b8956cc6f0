"""Accesses of one place whose order the threads of a program do not keep by themselves."""
