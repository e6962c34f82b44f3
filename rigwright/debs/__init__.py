"""Packages of somebody else's archive than the distribution's: locked one by one, pinned, held, and kept."""
