"""Weights on a host, and given to others."""
