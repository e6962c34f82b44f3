"""Memory records: what each start of an instance took, written by a program on the host."""
