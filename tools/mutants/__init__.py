"""Known mistakes put into a copy of the compiler, one at a time: do the tests notice?"""
