"""Keys of environments."""
