"""The programs that bring weights to a host and keep them verified: only Python 3.10 and its standard library."""
