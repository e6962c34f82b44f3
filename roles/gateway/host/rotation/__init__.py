"""The program that keeps instances out of the rotation, as a host runs it."""
