"""A box that nothing declares yet."""
