"""The residency service, as a host runs it: only Python 3.10 and its standard library."""
