"""Environments: a conda prefix with exactly the locked Python and the locked packages in it."""
