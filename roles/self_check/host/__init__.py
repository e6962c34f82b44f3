"""The program on a host that checks it: Python 3.10 and its standard library."""
