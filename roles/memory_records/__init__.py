"""Memory records: the memory of each start of an instance, written by a program on the host."""
