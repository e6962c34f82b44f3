"""Acceptance: which entries of a host its operator has reviewed, and what is different from those.

Nothing here reaches a host, and nothing but `accepted_entries` reads or writes a file.
"""
