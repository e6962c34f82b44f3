"""The programs that serve the gateway on a host: only Python 3.10 and its standard library."""
