"""Where threads of a program must meet, so that accesses of memory keep their order."""
